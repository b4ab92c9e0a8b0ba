"use strict";
(() => {
  const PRINT_WIDTH_PX = 680;
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const names = Object.keys(figures).filter((name) => figures[name] !== null);
  const config = {
    responsive: true,
    displayModeBar: false,
  };

  const draw = async (name) => {
    const place = document.getElementById(name);
    try {
      await Plotly.newPlot(place, figures[name].data, figures[name].layout, config);
    } catch (error) {
      place.classList.add("failed");
      place.textContent = `This figure could not be drawn: ${error.message}`;
      console.error(error);
    }
  };

  const buttons = [...document.querySelectorAll("button[data-plot]")];
  const press = (button) => {
    for (const other of buttons) other.setAttribute("aria-pressed", String(other === button));
  };
  for (const button of buttons) {
    button.addEventListener("click", () => {
      const range = [Number(button.dataset.from), Number(button.dataset.to)];
      Plotly.relayout(button.dataset.plot, { "xaxis.range": range });
      press(button);
    });
  }
  if (buttons.length > 0) press(buttons[0]);

  const drawn = () => names.filter((name) => !document.getElementById(name).matches(".failed"));
  window.addEventListener("beforeprint", () => {
    for (const name of drawn()) Plotly.relayout(name, { width: PRINT_WIDTH_PX });
  });
  window.addEventListener("afterprint", () => {
    for (const name of drawn()) Plotly.relayout(name, { width: null, autosize: true });
  });

  Promise.all(names.map(draw)).then(() => {
    document.documentElement.dataset.figures = "drawn";
  });
})();
