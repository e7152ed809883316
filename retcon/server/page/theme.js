// Before anything is drawn: the theme that was chosen here before, if one was.
try {
  const kept = localStorage.getItem("retcon-theme");
  if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;
} catch { /* storage may be switched off */ }
