// Draws the figures that came with the page, in its colours, with the selected trial marked.
// A chart is drawn when the reader comes near it, and again when something has changed.
report.charts = (() => {
  const touch = matchMedia("(pointer: coarse)").matches;
  const config = {
    displaylogo: false,
    displayModeBar: touch ? false : "hover",
    modeBarButtons: [["toImage", "resetScale2d"]],
    responsive: true,
    toImageButtonOptions: { format: "png", scale: 2 },
  };
  const axis = { automargin: true, gridcolor: "var(--grid)", linecolor: "var(--grid)", zeroline: false };
  const template = {
    layout: {
      margin: { l: 8, r: 12, t: 12, b: 8 },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { color: "var(--muted)", size: 12 },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: "var(--quiet)", activecolor: "var(--accent)" },
      showlegend: false,
      hovermode: "closest",
      hoverlabel: {
        bgcolor: "var(--paper)",
        bordercolor: "var(--quiet)",
        font: { color: "var(--ink)", size: 13 },
        align: "left",
      },
      xaxis: axis,
      yaxis: axis,
      annotationdefaults: {
        showarrow: false,
        font: { size: 11, color: "var(--muted)" },
        bgcolor: "var(--paper)",
        borderpad: 1,
      },
      shapedefaults: { type: "line", layer: "below", line: { color: "var(--quiet)", width: 1 } },
    },
  };
  const selected = {
    type: "scatter",
    hoverinfo: "skip",
    line: { color: "var(--ink)", width: 2.5 },
    marker: { color: "var(--paper)", size: 11, line: { color: "var(--ink)", width: 2.5 } },
  };
  const axisRoom = 96;
  const lyingRoom = 72;
  const letterRoom = 7;
  const charts = [...document.querySelectorAll(".chart")].map(prepared);

  function prepared(box) {
    const { figure, height } = report.data.charts[box.dataset.chart];
    const owners = figure.data.map((trace) => expanded(trace.meta?.owners ?? []));
    figure.data.forEach((trace, place) => {
      if (owners[place].length) trace.text = owners[place].map((trial) => report.data.trials[trial].hover);
    });
    const chart = { box, figure, height, owners, hidden: new Set(), axes: axesOf(figure) };
    return Object.assign(chart, { isStale: true, isNear: false, isLying: isNarrow(chart) });
  }

  // A trial and the number of its points become that trial once for each point.
  function expanded(owners) {
    return owners.flatMap(([trial, points]) => Array(points).fill(trial));
  }

  function axesOf(figure) {
    return (figure.layout.annotations ?? []).filter((label) => label.name === "axis").length;
  }

  // Parallel axes stand side by side where there is room for their names; else they lie,
  // one below the other.
  function isNarrow({ box, axes }) {
    return box.clientWidth < axisRoom * axes;
  }

  function draw(chart) {
    chart.isStale = false;
    const { data, layout } = report.colours.painted({
      data: [...chart.figure.data.map((trace, place) => shown(chart, trace, place)), ...marked(chart)],
      layout: { ...chart.figure.layout, template },
    });
    layout.font = { family: getComputedStyle(document.body).fontFamily };
    layout.height = heightOf(chart);
    if (chart.axes) (chart.isLying ? lay : stand)(chart, data, layout);
    if (touch) settle(layout);
    Plotly.react(chart.box, data, layout, config);
    if (!chart.isFollowed) follow(chart);
  }

  function heightOf(chart) {
    return chart.isLying ? lyingRoom * chart.axes : chart.height;
  }

  function shown(chart, trace, place) {
    return chart.hidden.has(place) ? { ...trace, visible: false } : trace;
  }

  // The selected trial, on top of the others, in charts that show trials.
  function marked(chart) {
    if (!chart.owners.some((owners) => owners.length)) return [];
    const points = pointsOf(chart, report.selection.chosen());
    return [{ ...selected, ...points, mode: points.x.length > 1 ? "lines" : "markers" }];
  }

  // The longest of a trial's appearances: its line rather than the mark at its end.
  function pointsOf(chart, trial) {
    let found = { x: [], y: [] };
    chart.owners.forEach((owners, place) => {
      const first = owners.indexOf(trial);
      const end = owners.lastIndexOf(trial) + 1;
      if (first < 0 || end - first <= found.x.length) return;
      const { x, y } = chart.figure.data[place];
      found = { x: x.slice(first, end), y: y.slice(first, end) };
    });
    return found;
  }

  // A finger scrolls the page; it does not zoom.
  function settle(layout) {
    layout.dragmode = false;
    layout.xaxis.fixedrange = true;
    layout.yaxis.fixedrange = true;
  }

  function stand(chart, data, layout) {
    const room = chart.box.clientWidth / chart.axes;
    const names = layout.annotations.filter(({ name }) => name === "axis");
    const isTight = names.some(({ text }) => (text.length - "<b></b>".length) * letterRoom > room);
    names.forEach((label) => {
      const isHigh = isTight && label.x % 2; // names that would touch stand at two heights
      Object.assign(label, { yanchor: "bottom", yshift: isHigh ? 40 : 22 });
    });
    layout.annotations.filter(({ name }) => name === "tick").forEach((label) => {
      if (label.y === 1) Object.assign(label, { yanchor: "bottom", yshift: 3 });
      else if (label.y <= 0) Object.assign(label, { yanchor: "top", yshift: -3 });
      else Object.assign(label, { xanchor: "left", xshift: 3 });
    });
  }

  function lay(chart, data, layout) {
    const turned = ({ x, y, ...rest }) => ({ ...rest, x: y, y: x });
    data.forEach((trace) => Object.assign(trace, turned(trace)));
    layout.shapes = layout.shapes.map(({ x0, x1, y0, y1, ...rest }) => ({ ...rest, x0: y0, x1: y1, y0: x0, y1: x1 }));
    layout.xaxis = layout.yaxis;
    layout.yaxis = { visible: false, fixedrange: true, range: [chart.axes - 0.6, -0.6] };
    layout.margin = { l: 6, r: 6, t: 0, b: 0 };
    layout.annotations = layout.annotations.map(turned);
    layout.annotations.forEach((label) => {
      if (label.name === "axis") Object.assign(label, { x: 0, xanchor: "left", yanchor: "bottom", yshift: 3 });
      else Object.assign(label, { xanchor: anchorOf(label.x), yanchor: "top", yshift: -3 });
    });
  }

  function anchorOf(place) {
    if (place <= 0) return "left";
    return place === 1 ? "right" : "center";
  }

  function follow(chart) {
    chart.isFollowed = true;
    chart.box.on("plotly_click", ({ points: [point] }) => {
      const trial = chart.owners[point.curveNumber]?.[point.pointNumber];
      if (trial !== undefined) report.selection.choose(trial);
    });
  }

  const pause = () => new Promise((resume) => setTimeout(resume));
  let isWorking = false;

  // One chart after the other, so that the page answers in between.
  async function work() {
    if (isWorking) return;
    isWorking = true;
    document.body.dataset.charts = "drawing";
    for (let chart; (chart = charts.find(({ isStale, isNear }) => isStale && isNear)); ) {
      draw(chart);
      await pause();
    }
    document.body.dataset.charts = "drawn";
    isWorking = false;
  }

  function refresh() {
    charts.forEach((chart) => (chart.isStale = true));
    work();
  }

  function start() {
    const observer = new IntersectionObserver(
      (entries) => {
        for (const { target, isIntersecting } of entries) {
          charts.find(({ box }) => box === target).isNear = isIntersecting;
        }
        work();
      },
      { rootMargin: "50% 0px" },
    );
    for (const chart of charts) {
      chart.box.style.height = `${heightOf(chart)}px`;
      observer.observe(chart.box);
    }
    work();
  }

  function show(name, traces, isShown) {
    const chart = charts.find(({ box }) => box.dataset.chart === name);
    traces.forEach((place) => (isShown ? chart.hidden.delete(place) : chart.hidden.add(place)));
    draw(chart);
  }

  function rearrange() {
    for (const chart of charts.filter((each) => each.axes && isNarrow(each) !== each.isLying)) {
      Object.assign(chart, { isStale: true, isLying: !chart.isLying });
      chart.box.style.height = `${heightOf(chart)}px`;
    }
    work();
  }

  return { start, refresh, drawNow: () => charts.forEach(draw), show, rearrange };
})();
