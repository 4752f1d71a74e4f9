"use strict";
document.documentElement.classList.add("js");

// One table of a measure by lead time is shown at a time.
(() => {
  const measure = document.getElementById("measure");
  if (!measure) return;
  const tables = [...document.querySelectorAll(".by-lead")];
  const choose = () => tables.forEach((table, i) => table.classList.toggle("chosen", i === measure.selectedIndex));
  measure.addEventListener("change", choose);
  choose();
})();
