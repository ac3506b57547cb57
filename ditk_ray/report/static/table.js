// The table of trials: sorting, filtering, and selecting by mouse or keyboard.
report.table = (() => {
  const body = document.querySelector("#trials tbody");
  if (!body) return { start() {}, step() {}, told: () => [] };

  const headers = [...document.querySelectorAll("#trials thead th")];
  const filter = document.getElementById("filter");
  const more = document.getElementById("more");
  const collator = new Intl.Collator(undefined, { numeric: true });
  const strides = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10, Home: -Infinity, End: Infinity };
  let limit = body.querySelectorAll("tr:not(.later)").length; // a long table begins with a part

  const found = () => [...body.rows].filter((row) => !row.hidden);
  const nameOf = (row) => row.querySelector("button");
  const trialOf = (row) => Number(row.dataset.trial);
  const rowOf = (trial) => body.querySelector(`tr[data-trial="${trial}"]`);

  function valueOf(cell) {
    if ("missing" in cell.dataset) return null;
    const text = cell.dataset.full ?? cell.textContent;
    return cell.classList.contains("number") ? Number.parseFloat(text.replaceAll(",", "")) : text;
  }

  function compare(one, other) {
    return typeof one === "number" ? one - other : collator.compare(one, other);
  }

  function sort(header) {
    const column = headers.indexOf(header);
    const isUp = header.getAttribute("aria-sort") !== "ascending";
    const keyed = [...body.rows].map((row) => ({ row, value: valueOf(row.cells[column]) }));
    const known = keyed.filter(({ value }) => value !== null);
    known.sort((one, other) => compare(one.value, other.value) * (isUp ? 1 : -1));
    const missing = keyed.filter(({ value }) => value === null);
    body.replaceChildren(...[...known, ...missing].map(({ row }) => row));
    headers.forEach((each) => each.removeAttribute("aria-sort"));
    header.setAttribute("aria-sort", isUp ? "ascending" : "descending");
    cut();
  }

  function narrow() {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of body.rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
    }
    cut();
  }

  function cut() {
    const rows = found();
    rows.forEach((row, place) => row.classList.toggle("later", place >= limit));
    document.getElementById("filtered").textContent = `${rows.length} of ${body.rows.length}`;
    more.hidden = rows.length <= limit;
    if (rows.length && !shown().some((row) => nameOf(row).tabIndex === 0)) makeEntry(rows[0]);
  }

  const shown = () => found().filter((row) => !row.classList.contains("later"));

  // One name takes part in the order of the Tab key; the arrow keys reach the others.
  function makeEntry(row) {
    body.querySelectorAll('button[tabindex="0"]').forEach((button) => (button.tabIndex = -1));
    nameOf(row).tabIndex = 0;
  }

  function moveFocus(event) {
    const from = event.target.closest("tr");
    if (!(event.key in strides) || event.target !== nameOf(from)) return;
    event.preventDefault();
    const row = neighbour(shown(), from, strides[event.key]);
    makeEntry(row);
    nameOf(row).focus();
  }

  function neighbour(rows, from, stride) {
    const place = rows.indexOf(from) + stride;
    return rows[Math.min(Math.max(place, 0), rows.length - 1)];
  }

  function step(stride) {
    const row = neighbour(found(), rowOf(report.selection.chosen()), stride);
    if (row) report.selection.choose(trialOf(row));
  }

  function mark(trial) {
    for (const row of body.querySelectorAll("tr.chosen")) {
      row.classList.remove("chosen");
      nameOf(row).setAttribute("aria-pressed", "false");
    }
    if (trial === null) return;
    rowOf(trial).classList.add("chosen");
    nameOf(rowOf(trial)).setAttribute("aria-pressed", "true");
  }

  function start() {
    headers.forEach((header) => header.querySelector("button").addEventListener("click", () => sort(header)));
    filter.addEventListener("input", narrow);
    more.addEventListener("click", () => {
      limit = Infinity;
      cut();
    });
    body.addEventListener("keydown", moveFocus);
    body.addEventListener("click", (event) => {
      const row = event.target.closest("tr");
      makeEntry(row);
      report.selection.toggle(trialOf(row));
    });
    report.selection.follow(mark);
  }

  // What a row tells, with its headings: names and full values.
  function told(trial) {
    return [...rowOf(trial).cells].slice(1).map((cell, place) => {
      return [headers[place + 1].textContent, cell.dataset.full ?? cell.textContent];
    });
  }

  return { start, step, told };
})();
