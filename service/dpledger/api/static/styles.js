// Runs before Redoc, which writes its styles into the page: the policy allows those that carry this page's word.

const { nonce } = document.getElementById("page");
const create = document.createElement.bind(document);
document.createElement = (name, ...options) => {
  const element = create(name, ...options);
  if (element instanceof HTMLStyleElement) element.nonce = nonce;
  return element;
};
