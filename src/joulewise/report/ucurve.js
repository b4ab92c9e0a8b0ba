"use strict";
(() => {
  const choice = document.getElementById("job-choice");
  if (choice === null) return;
  const curves = JSON.parse(document.getElementById("curves").textContent);
  choice.addEventListener("change", () => {
    const chosen = curves[Number(choice.value)];
    Plotly.react("curve-plot", chosen.data, chosen.layout);
  });
})();
