"use strict";

const report = { data: JSON.parse(document.getElementById("data").textContent) };

// Colours are written `var(--name)` in the charts; the page's style says what they are.
report.colours = (() => {
  const named = /^var\((--[\w-]+)\)$/;

  function resolve(value, style) {
    if (typeof value === "string") {
      const name = named.exec(value);
      return name ? style.getPropertyValue(name[1]).trim() : value;
    }
    if (Array.isArray(value)) {
      // Coordinates are long and hold no colour.
      return typeof value[0] === "number" ? value : value.map((item) => resolve(item, style));
    }
    if (value && typeof value === "object") {
      const pairs = Object.entries(value).map(([key, item]) => [key, resolve(item, style)]);
      return Object.fromEntries(pairs);
    }
    return value;
  }

  return { painted: (value) => resolve(value, getComputedStyle(document.documentElement)) };
})();
