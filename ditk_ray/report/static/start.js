// The card of the selected trial, the page's buttons, and the beginning of everything.
(() => {
  const card = document.getElementById("card");

  function showCard(trial) {
    card.hidden = trial === null;
    document.body.style.paddingBottom = trial === null ? "" : `${card.offsetHeight + 32}px`;
    if (trial === null) return announce("Selection cleared");
    const { id } = report.data.trials[trial];
    const rows = report.table.told(trial);
    document.getElementById("card-title").textContent = id;
    document.getElementById("card-rows").replaceChildren(...rows.map(listed));
    const changes = report.data.changes[trial] ?? [];
    document.getElementById("card-changes").replaceChildren(...changes.map((text) => element("li", text)));
    announce(`${id} selected, ${rows[0][1]}, ${rows[1].join(" ")}`);
  }

  function listed([name, value]) {
    const row = document.createElement("div");
    row.append(element("dt", name), element("dd", value));
    return row;
  }

  function element(kind, text) {
    const made = document.createElement(kind);
    made.textContent = text;
    return made;
  }

  function announce(text) {
    document.getElementById("status").textContent = text;
  }

  async function copy(button) {
    const source = document.getElementById(button.dataset.copy);
    try {
      await navigator.clipboard.writeText(source.textContent);
    } catch {
      getSelection().selectAllChildren(source); // where the clipboard is out of reach
      document.execCommand("copy");
    }
    button.textContent = "Copied";
    announce("Copied");
    setTimeout(() => (button.textContent = "Copy"), 2000);
  }

  function onClick({ target }) {
    const button = target.closest("button");
    if (!button) return;
    if (button.dataset.copy) copy(button);
    if (button.dataset.select) report.selection.choose(Number(button.dataset.select));
    if (button.dataset.step) report.table.step(Number(button.dataset.step));
    if (button.id === "clear") report.selection.clear();
  }

  function setPrinting(isPrinting) {
    document.documentElement.toggleAttribute("data-print", isPrinting);
    if (matchMedia("(prefers-color-scheme: dark)").matches) report.charts.drawNow();
  }

  report.table.start();
  report.selection.follow(showCard);
  report.selection.follow(() => report.charts.refresh());
  document.addEventListener("click", onClick);
  document.addEventListener("keydown", ({ key }) => key === "Escape" && report.selection.clear());
  document.querySelectorAll(".legend input").forEach((box) =>
    box.addEventListener("change", () => report.charts.show("curves", box.dataset.traces.split(" ").map(Number), box.checked)),
  );
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => report.charts.refresh());
  addEventListener("resize", () => report.charts.rearrange());
  addEventListener("beforeprint", () => setPrinting(true));
  addEventListener("afterprint", () => setPrinting(false));
  report.charts.start();
})();
