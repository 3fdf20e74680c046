// Before the first paint, so that nobody is blinded at night.
try {
  const chosen = localStorage.getItem("dray-theme");
  if (chosen) document.documentElement.dataset.theme = chosen;
} catch { /* storage may be switched off */ }
