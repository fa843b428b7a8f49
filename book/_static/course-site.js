// Small things the pages need that style sheets cannot do. Nothing here is needed to read.
(() => {
  "use strict";

  // What may be wider than the page scrolls inside itself. Where it does, a keyboard
  // must be able to reach it, and a screen reader to say what it is.
  const WIDE = [
    [".cell_output pre", "Output, scrolls sideways"],
    ["pre", "Code, scrolls sideways"],
    [".pst-scrollable-table-container", "Table, scrolls sideways"],
    [".output.text_html", "Output, scrolls sideways"],
    ["div.math, mjx-container.course-wide", "Formula, scrolls sideways"],
  ];

  function markWide() {
    const article = document.querySelector(".bd-article");
    if (!article) return;
    for (const formula of article.querySelectorAll("mjx-container:not([display])")) {
      const room = formula.closest("p, li, td, div")?.clientWidth ?? Infinity;
      formula.classList.remove("course-wide");
      formula.classList.toggle("course-wide", formula.getBoundingClientRect().width > room);
    }
    const seen = new Set();
    for (const [selector, label] of WIDE) {
      for (const box of article.querySelectorAll(selector)) {
        if (seen.has(box)) continue;
        seen.add(box);
        if (box.scrollWidth > box.clientWidth + 1) {
          box.tabIndex = 0;
          box.setAttribute("role", "group");
          box.setAttribute("aria-label", label);
        } else if (box.getAttribute("aria-label") === label) {
          for (const name of ["tabindex", "role", "aria-label"]) box.removeAttribute(name);
        }
      }
    }
  }

  let pending = 0;
  function markSoon() {
    cancelAnimationFrame(pending);
    pending = requestAnimationFrame(markWide);
  }
  markSoon();
  addEventListener("resize", markSoon);
  document.addEventListener("toggle", markSoon, true); // a <details> opened
  document.fonts?.ready.then(markSoon);
  addEventListener("load", () => {
    markSoon();
    window.MathJax?.startup?.promise?.then(markSoon);
  });

  // Paper cannot be clicked: what is folded is printed open.
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll(".bd-article details:not([open])")];
    for (const details of opened) details.open = true;
  });
  addEventListener("afterprint", () => {
    for (const details of opened) details.open = false;
  });
})();
