// Takes over what is new while a search goes on: the page's main part is replaced, and what a person does with it stays.
const events = new EventSource("/events");
let taking = Promise.resolve();
events.onmessage = () => { taking = taking.then(renew); };  // one after the other

async function renew() {
  try {
    const answer = await fetch("/"), text = await answer.text();
    if (answer.ok) takeOver(text); else complain(text);
  } catch { complain("the server of this page does not answer"); }
}

function complain(words) {
  one("#fault")?.remove();
  one("main").prepend(element("p", {id: "fault", class: "note", role: "alert"}, `This page is not up to date: ${words}`));
}

const keyOf = each => `${each.closest("section")?.id} ${each.id || each.getAttribute("aria-label") || each.textContent.trim().slice(0, 40)}`;

function takeOver(text) {
  const fresh = new DOMParser().parseFromString(text, "text/html"), at = [scrollX, scrollY];
  const opened = new Set(all("main details[open]").map(each => each.closest("section").id));
  const focused = one("main").contains(document.activeElement) ? keyOf(document.activeElement) : null;
  one("main").replaceWith(document.adoptNode(one("main", fresh)));
  document.title = fresh.title;
  one("footer").replaceWith(document.adoptNode(one("footer", fresh)));
  for (const each of all("main details")) each.open ||= opened.has(each.closest("section").id);
  start();
  for (const look of hidden) one(`[data-hide="${look}"]`)?.setAttribute("aria-pressed", false);
  fillFilters();
  show();
  if (focused) all("main a, main button, main [tabindex], main input, main summary").find(each => keyOf(each) === focused)?.focus({preventScroll: true});
  if (chosen !== null) choose(chosen);
  scrollTo({left: at[0], top: at[1], behavior: "instant"});
}
