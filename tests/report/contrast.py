"""Measuring contrast as the Web's accessibility guidelines define it, in the browser."""

LOW_CONTRAST = """() => {
  const least = 4.5;

  function parsed(colour) {
    const [r, g, b, a = 1] = colour.match(/[\\d.]+/g).map(Number);
    return { r, g, b, a };
  }

  function luminance({ r, g, b }) {
    const linear = [r, g, b].map((part) => {
      const share = part / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  }

  function behind(element) {
    for (let at = element; at; at = at.parentElement) {
      const colour = parsed(getComputedStyle(at).backgroundColor);
      if (colour.a === 1) return colour;
    }
    return { r: 255, g: 255, b: 255, a: 1 };
  }

  function ratio(one, other) {
    const [dark, light] = [luminance(one), luminance(other)].sort((a, b) => a - b);
    return (light + 0.05) / (dark + 0.05);
  }

  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    const text = walker.currentNode.textContent.trim();
    if (!text || !element.checkVisibility() || element.closest(".hidden, .skip")) continue;
    const style = getComputedStyle(element);
    const colour = parsed(element.closest("svg") ? style.fill : style.color);
    const measured = ratio(colour, behind(element));
    if (measured < least) found.push(`${text.slice(0, 40)}: ${measured.toFixed(2)}`);
  }
  return found;
}"""
