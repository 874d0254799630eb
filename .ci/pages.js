// Looks at the page that it is part of, and tells the window around it what is wrong with the
// layout. .ci/pages adds it to pages of results.
"use strict";

// Least height of text in pixels, and how far boxes may touch: boxes are higher than letters.
const TEXT_MIN = 8, TOUCH = 2;

const problems = [];
const shown = text => "«" + text.textContent.slice(0, 60) + "»";
const titled = svg => "drawing «" + (svg.getAttribute("aria-label") || "") + "»";

function drawing(svg) {
  const frame = svg.getBoundingClientRect();
  const texts = [...svg.querySelectorAll("text")].filter(text => text.textContent.trim());
  const boxes = texts.map(text => text.getBoundingClientRect());
  const marks = svg.querySelectorAll("rect, circle, .line, .mark, .paper");
  if (marks.length === 0 && !svg.textContent.includes("not measured: "))
    problems.push(`${titled(svg)} is empty and does not say why`);
  texts.forEach((text, i) => {
    const box = boxes[i];
    if (box.left < frame.left - 1 || box.right > frame.right + 1 ||
        box.top < frame.top - 1 || box.bottom > frame.bottom + 1)
      problems.push(`${titled(svg)} cuts ${shown(text)}`);
    const scale = frame.width / svg.viewBox.baseVal.width;
    const size = parseFloat(getComputedStyle(text).fontSize) * scale;
    if (size < TEXT_MIN) problems.push(`${titled(svg)}: ${shown(text)} is ${size.toFixed(1)} px high`);
    for (let j = 0; j < i; j++) {
      const wide = Math.min(box.right, boxes[j].right) - Math.max(box.left, boxes[j].left);
      const high = Math.min(box.bottom, boxes[j].bottom) - Math.max(box.top, boxes[j].top);
      if (wide > TOUCH && high > TOUCH)
        problems.push(`${titled(svg)}: ${shown(texts[j])} and ${shown(text)} overlap`);
    }
  });
}

function scrollsByItself(element) {
  for (let at = element; at && at !== document.body; at = at.parentElement)
    if (["auto", "scroll"].includes(getComputedStyle(at).overflowX)) return true;
  return false;
}

addEventListener("load", () => {
  document.querySelectorAll("details").forEach(details => { details.open = true; });
  const wide = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth > wide) problems.push("the page scrolls sideways");
  for (const element of document.body.querySelectorAll("*"))
    if (!element.closest("svg > *") && !scrollsByItself(element) &&
        element.getBoundingClientRect().right > wide + 1)
      problems.push(`<${element.localName}> is wider than the page: ${shown(element)}`);
  // A word that is wider than its cell is broken, at worst letter by letter.
  const pen = document.createElement("canvas").getContext("2d");
  for (const cell of document.querySelectorAll("td, th")) {
    const style = getComputedStyle(cell);
    pen.font = style.font;
    const room = cell.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
    if (cell.textContent.split(/\s/).some(word => pen.measureText(word).width > room + 2))
      problems.push(`the cell ${shown(cell)} breaks words`);
  }
  const drawings = document.querySelectorAll("figure svg, svg[viewBox]");
  drawings.forEach(drawing);
  parent.postMessage({ wide, drawings: drawings.length, problems }, "*");
});
