// Arithmatex leaves formulas as \(...\) and \[...\] in elements of its class, in pages and in docstrings: KaTeX sets them.
document.addEventListener("DOMContentLoaded", () => {
  for (const formula of document.querySelectorAll(".arithmatex")) {
    const source = formula.textContent.trim();
    katex.render(source.slice(2, -2), formula, { displayMode: source.startsWith("\\["), throwOnError: false });
  }
});
