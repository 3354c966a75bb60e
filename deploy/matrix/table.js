(function () {
  "use strict";
  var table = document.getElementById("cells"), body = table.tBodies[0], rows = Array.prototype.slice.call(body.rows);
  var filter = document.getElementById("filter"), outcome = document.getElementById("outcome"), kind = document.getElementById("kind");
  var texts = rows.map(function (row) { return row.textContent.toLowerCase(); });
  function number(text) { return /^-?inf$/.test(text) ? text.replace("inf", "1") * Number.MAX_VALUE : text === "nan" ? Number.MAX_VALUE : +text; }
  function show() {
    var words = filter.value.toLowerCase().split(/\s+/).filter(Boolean), count = 0;
    rows.forEach(function (row, i) {
      var good = (!outcome.value || row.dataset.outcome === outcome.value) && (!kind.value || row.dataset.kind === kind.value) &&
        words.every(function (word) {
          return word[0] === "!" ? word.length === 1 || texts[i].indexOf(word.slice(1)) < 0 : texts[i].indexOf(word) >= 0;
        });
      row.hidden = !good;
      count += good ? 1 : 0;
    });
    document.getElementById("count").textContent = count + " of " + rows.length;
  }
  [filter, outcome, kind].forEach(function (each) { each.addEventListener("input", show); });
  Array.prototype.forEach.call(table.tHead.rows[0].cells, function (head, column) {
    var button = head.querySelector("button");
    if (!button) { return; }
    button.addEventListener("click", function () {
      var down = head.getAttribute("aria-sort") === "ascending", numeric = head.classList.contains("n");
      Array.prototype.forEach.call(table.tHead.rows[0].cells, function (other) { other.removeAttribute("aria-sort"); });
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      rows.slice().sort(function (a, b) {
        var x = a.cells[column].dataset.v, y = b.cells[column].dataset.v;
        if (x === "" || y === "") { return (x === "" ? 1 : 0) - (y === "" ? 1 : 0); }
        var order = numeric ? number(x) - number(y) || 0 : x.localeCompare(y, undefined, { numeric: true });
        return down ? -order : order;
      }).forEach(function (row) { body.appendChild(row); });
    });
  });
  show();
})();
