// Draws the API's description with Swagger UI, whose own script ran before this one.

window.SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#page",
  deepLinking: true,
  // Its default asks another host whether the description is valid.
  validatorUrl: null,
  persistAuthorization: false,
});
