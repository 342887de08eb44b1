"""How pages look: one calm column, light and dark, from phone to desk."""

STYLE = """
:root {
  color-scheme: light dark;
  --page: #fbfaf7; --card: #ffffff; --ink: #20242a; --soft: #5b6470; --line: #dfe1e5; --accent: #0b62a4;
  --blue: #0072b2; --warn-ink: #7a4a00; --warn: #fdf3de; --warn-line: #ecd29a;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #15181c; --card: #1c2025; --ink: #e2e5e9; --soft: #a0a8b2; --line: #323840; --accent: #6cb4ee;
    --blue: #2b8ad6; --warn-ink: #f0cf8e; --warn: #2c2414; --warn-line: #5a4820;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; text-size-adjust: 100%; }
body {
  margin: 0; background: var(--page); color: var(--ink);
  font: 1.0625rem/1.6 system-ui, -apple-system, "Segoe UI", Roboto,
    "Helvetica Neue", "Liberation Sans", Arial, sans-serif;
}
main, header, footer { max-width: 52rem; margin: 0 auto; padding: 0 1.25rem; overflow-wrap: anywhere; }
header { padding-top: 3rem; }
footer { padding-top: 1rem; padding-bottom: 3rem; color: var(--soft); font-size: .875rem; }
h1 { font-size: clamp(1.6rem, 1.2rem + 2vw, 2.25rem); line-height: 1.2; letter-spacing: -.015em; margin: 0 0 .75rem; }
h2 { font-size: 1.3rem; line-height: 1.3; letter-spacing: -.01em; margin: 0 0 .75rem; }
p { margin: 0 0 .9rem; max-width: 42rem; }
.lead { font-size: 1.15rem; color: var(--soft); }
section { margin: 2.5rem 0; padding-top: 1.75rem; border-top: 1px solid var(--line); }
ul { margin: 0 0 .9rem; padding-left: 1.2rem; max-width: 42rem; }
li { margin: .25rem 0; }
dl { display: grid; grid-template-columns: minmax(7rem, max-content) 1fr; gap: .45rem 1.25rem; margin: 0 0 1rem; }
dt { color: var(--soft); }
dd { margin: 0; }
.cards {
  display: grid; grid-template-columns: repeat(auto-fit, minmax(min(9.5rem, 100%), 1fr));
  gap: .75rem; margin: 1rem 0;
}
.card { background: var(--card); border: 1px solid var(--line); border-radius: .75rem; padding: .9rem 1rem; }
.card .name { color: var(--soft); font-size: .875rem; }
.card .value { font-size: 1.6rem; line-height: 1.25; font-weight: 600; font-variant-numeric: tabular-nums; }
.card .error { color: var(--soft); font-size: 1rem; font-weight: 400; white-space: nowrap; }
.card .words { color: var(--soft); font-size: .875rem; line-height: 1.4; margin-top: .2rem; }
.wide {
  overflow: hidden; margin: 0 0 1rem;
  background: var(--card); border: 1px solid var(--line); border-radius: .75rem;
}
table { border-collapse: collapse; width: 100%; font-size: .9375rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; padding: .7rem .65rem .2rem; color: var(--soft); }
th, td {
  padding: .5rem .65rem; overflow-wrap: normal;
  text-align: left; vertical-align: top; border-bottom: 1px solid var(--line);
}
th { font-weight: 600; color: var(--soft); vertical-align: bottom; }
tr:last-child td { border-bottom: 0; }
.num { text-align: right; }
td.short { white-space: nowrap; }
.stacked, .stacked tbody, .stacked caption { display: block; }
.stacked thead { display: none; }
.stacked tr {
  display: grid; grid-template-columns: repeat(auto-fill, minmax(5.5rem, 1fr)); gap: .3rem .75rem;
  padding: .7rem .65rem; border-bottom: 1px solid var(--line);
}
.stacked tr:last-child { border-bottom: 0; }
.stacked td { padding: 0; border: 0; text-align: left; white-space: normal; overflow-wrap: anywhere; }
.stacked td::before { content: attr(data-name); display: block; color: var(--soft); font-size: .8125rem; }
.stacked td:first-child { grid-column: 1 / -1; font-weight: 600; }
.stacked td:first-child::before { display: inline; margin-right: .5rem; font-weight: 400; }
.stacked td.long { grid-column: 1 / -1; }
.stacked td:empty { display: none; }
@media (max-width: 50rem) {
.stacks, .stacks tbody, .stacks caption { display: block; }
.stacks thead { display: none; }
.stacks tr {
  display: grid; grid-template-columns: repeat(auto-fill, minmax(5.5rem, 1fr)); gap: .3rem .75rem;
  padding: .7rem .65rem; border-bottom: 1px solid var(--line);
}
.stacks tr:last-child { border-bottom: 0; }
.stacks td { padding: 0; border: 0; text-align: left; white-space: normal; overflow-wrap: anywhere; }
.stacks td::before { content: attr(data-name); display: block; color: var(--soft); font-size: .8125rem; }
.stacks td:first-child { grid-column: 1 / -1; font-weight: 600; }
.stacks td:first-child::before { display: inline; margin-right: .5rem; font-weight: 400; }
.stacks td.long { grid-column: 1 / -1; }
.stacks td:empty { display: none; }
}
figure { margin: 0 0 1rem; }
.pair {
  display: grid; grid-template-columns: repeat(auto-fit, minmax(min(19rem, 100%), 1fr));
  gap: 1rem; margin: 0 0 1rem;
}
.pair figure { margin: 0; }
.gallery {
  display: grid; grid-template-columns: repeat(auto-fill, minmax(7.5rem, 1fr)); gap: .75rem; margin: 0 0 1.25rem;
}
.gallery figure { margin: 0; }
.gallery .frame { padding: .35rem; }
.gallery figcaption { font-size: .8125rem; overflow-wrap: anywhere; }
.frame {
  background: var(--card); border: 1px solid var(--line);
  border-radius: .75rem; padding: .6rem;
}
.frame svg { display: block; width: 100%; height: auto; margin: 0 auto; fill: currentColor; }
.frame img { display: block; width: 100%; height: auto; border-radius: .4rem; }
.frame svg text { font-family: inherit !important; }
figcaption { color: var(--soft); font-size: .9rem; line-height: 1.45; margin-top: .45rem; }
pre {
  background: var(--card); border: 1px solid var(--line); border-radius: .75rem; padding: .8rem 1rem; margin: 0 0 1rem;
  white-space: pre-wrap; overflow-wrap: anywhere;
  font: .875rem/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace;
}
.warn {
  background: var(--warn); color: var(--warn-ink); border: 1px solid var(--warn-line); border-radius: .75rem;
  padding: .75rem 1rem; margin: 0 0 1rem;
}
.warn p:last-child, .warn ul { margin-bottom: 0; max-width: none; }
@media (max-width: 30rem) {
  dl { grid-template-columns: 1fr; gap: 0; }
  dd { margin-bottom: .6rem; }
  header { padding-top: 1.75rem; }
  table { font-size: .875rem; }
  th, td { padding: .45rem .55rem; }
  td.short { white-space: normal; }
}
@media print { .frame, .card, .wide, pre { break-inside: avoid; } }
"""
