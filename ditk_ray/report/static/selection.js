// Which trial is selected, and whoever wants to know.
report.selection = (() => {
  const followers = [];
  let chosen = null;

  function choose(trial) {
    if (trial === chosen) return;
    chosen = trial;
    followers.forEach((tell) => tell(chosen));
  }

  return {
    choose,
    clear: () => choose(null),
    toggle: (trial) => choose(trial === chosen ? null : trial),
    chosen: () => chosen,
    follow: (tell) => followers.push(tell),
  };
})();
