// Draws the API's description with Redoc, whose own script ran before this one.

window.Redoc.init("openapi.json", { disableSearch: true }, document.getElementById("page"));
