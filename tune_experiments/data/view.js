"use strict";
// Shows recorded episodes turn by turn. Everything recorded is put on the page as textContent, never as markup.

const MOST_ROWS = 1000;
const records = JSON.parse(document.getElementById("records").textContent);
const part = Object.fromEntries(
  ["trial", "trial-label", "iteration", "outcome", "task", "count", "list", "episode", "turns", "turn"].map((id) => [
    id,
    document.getElementById(id),
  ]),
);
let shown = []; // numbers of the records that the filters let through
let chosen = -1; // number of the record on the right
let turnIndex = 0;
const unfolded = new Set(); // names of the blocks that a reader opened: they stay open from turn to turn

function element(name, className, text) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== undefined && text !== null) made.textContent = String(text);
  return made;
}

function number(value) {
  return typeof value === "number" ? String(Number(value.toPrecision(4))) : "–";
}

function span(low, high) {
  return low === high ? number(low) : `${number(low)} to ${number(high)}`;
}

function hasText(value) {
  return value !== undefined && value !== null && value !== "";
}

function outcomeOf(record) {
  if (record.use === "failed") return "failed";
  return record.success ? "won" : "not won";
}

// --- filters and list

function distinct(values) {
  return [...new Set(values)];
}

function fill(select, values) {
  select.append(new Option("all", ""), ...values.map((value) => new Option(String(value), String(value))));
}

function matches(record) {
  const wanted = part.task.value.trim().toLowerCase();
  return (
    (!part.trial.value || record.trial === part.trial.value) &&
    (!part.iteration.value || String(record.iteration) === part.iteration.value) &&
    (!part.outcome.value || [outcomeOf(record), record.use, record.stop_reason].includes(part.outcome.value)) &&
    (!wanted || `${record.task_id} ${record.task_type || ""}`.toLowerCase().includes(wanted))
  );
}

function filter() {
  shown = records.map((_, index) => index).filter((index) => matches(records[index]));
  const more = shown.length > MOST_ROWS ? `, the first ${MOST_ROWS} listed` : "";
  part.count.textContent = `${shown.length} of ${records.length} episodes${more}`;
  part.list.replaceChildren(...shown.slice(0, MOST_ROWS).map(row));
  choose(shown.includes(chosen) ? chosen : shown.length ? shown[0] : -1, shown.includes(chosen) ? turnIndex : 0);
}

function row(index) {
  const record = records[index];
  const button = element("button", `row ${outcomeOf(record).replace(" ", "-")}`);
  button.type = "button";
  button.dataset.index = index;
  button.append(
    element("span", "where", `${record.iteration} · ${record.group}/${record.member}`),
    element("span", "what", record.task_id),
    element("span", "end", `${record.stop_reason}, ${record.turns.length} turns, return ${number(record.return)}`),
  );
  button.addEventListener("click", () => choose(index, 0));
  return button;
}

// --- one episode

function choose(index, turn) {
  chosen = index;
  for (const button of part.list.children) {
    const isChosen = Number(button.dataset.index) === index;
    button.setAttribute("aria-current", isChosen ? "true" : "false");
    if (isChosen) button.scrollIntoView({ block: "nearest" });
  }
  showEpisode();
  showTurn(turn);
}

function showEpisode() {
  const record = records[chosen];
  if (!record) {
    part.episode.replaceChildren(element("p", "note", "No episode passes the filters."));
    part.turns.replaceChildren();
    return;
  }
  const parts = [
    element("h2", "", record.task_id),
    facts([
      ["outcome", outcomeOf(record), outcomeOf(record) === "won" ? "good" : "bad"],
      ["stop reason", record.stop_reason],
      ["return", number(record.return)],
      ["iteration", record.iteration],
      ["group / member", `${record.group} / ${record.member}`],
      ["in the update", record.use],
      ["kind of task", record.task_type],
      ["retries", record.retries || ""],
      ["error", record.error, "bad"],
      ["trial", part["trial-label"].hidden ? "" : record.trial],
    ]),
  ];
  const counted = Object.entries(record.env_metrics || {}).map(([name, value]) => [name, number(value)]);
  if (counted.length) parts.push(element("h3", "", "counted by the environment"), facts(counted));
  const costs = Object.entries(record.costs || {}).map(([name, value]) => [name, number(value)]);
  if (costs.length) parts.push(element("h3", "", "costs of the whole episode"), facts(costs));
  part.episode.replaceChildren(...parts);
  part.turns.replaceChildren(
    ...record.turns.map((turn, index) => {
      const sign = turn.reward > 0 ? "good" : turn.reward < 0 ? "bad" : "";
      const button = element("button", `${sign}${turn.action_valid ? "" : " flagged"}`, index + 1);
      button.type = "button";
      button.title = `reward ${number(turn.reward)}, advantage ${number(turn.advantage)}`;
      button.addEventListener("click", () => showTurn(index));
      return button;
    }),
  );
}

function showTurn(index) {
  const record = records[chosen];
  if (!record || !record.turns.length) {
    part.turn.replaceChildren(...(record ? [element("p", "note", "The episode has no turn.")] : []));
    return;
  }
  turnIndex = Math.max(0, Math.min(index, record.turns.length - 1));
  const turn = record.turns[turnIndex];
  [...part.turns.children].forEach((button, n) => {
    button.setAttribute("aria-current", n === turnIndex ? "true" : "false");
    if (n === turnIndex) button.scrollIntoView({ block: "nearest" });
  });
  const isLast = turnIndex === record.turns.length - 1;
  const costs = Object.entries(turn.costs || {}).map(([name, value]) => `${name} ${number(value)}`);
  const info = Object.entries(turn.info || {}).map(([name, v]) => [name, typeof v === "number" ? number(v) : v]);
  const version = turn.weight_version || [];
  part.turn.replaceChildren(
    element("h3", "", `turn ${turnIndex + 1} of ${record.turns.length}${isLast ? `, ended with ${record.stop_reason}` : ""}`),
    facts([
      ["reward", number(turn.reward), turn.reward > 0 ? "good" : turn.reward < 0 ? "bad" : ""],
      ["costs", costs.join(", "), "bad"],
      ["advantage", number(turn.advantage), turn.advantage > 0 ? "good" : turn.advantage < 0 ? "bad" : ""],
      ["ratio, mean", number(turn.ratio_mean)],
      ["ratio, range", turn.ratio_min === null ? "–" : span(turn.ratio_min, turn.ratio_max)],
      ["form", turn.format_valid ? "valid" : "not valid", turn.format_valid ? "" : "bad"],
      ["action", turn.action_valid ? "valid" : "not valid", turn.action_valid ? "" : "bad"],
      ["tokens in the loss", `${turn.loss_tokens} of ${turn.response_tokens}`, turn.loss_tokens ? "" : "bad"],
      ["forced tokens", turn.forced_tokens || ""],
      ["prompt tokens", turn.prompt_tokens],
      ["weight version", version.length ? span(version[0], version[1]) : ""],
      ["reply ended by", turn.finish_reason],
    ]),
    texts("observation", turn.observation),
    texts("thought", turn.thought),
    texts("action", turn.action, "action"),
    ...(info.length ? [element("h4", "", "the environment's info after the action"), facts(info)] : []),
    folded("reply, as sampled", turn.reply),
    folded(record.mode === "append" && turnIndex ? "added to the conversation before the reply" : "prompt", turn.prompt),
  );
}

function facts(entries) {
  const list = element("dl", "facts");
  for (const [name, value, tone] of entries) {
    if (!hasText(value)) continue;
    const item = element("div");
    item.append(element("dt", "", name), element("dd", tone, value));
    list.append(item);
  }
  return list;
}

function texts(name, text, className) {
  const block = element("div", "block");
  block.append(element("h4", "", name), hasText(text) ? element("pre", className, text) : element("p", "note", "none"));
  return block;
}

function folded(name, text) {
  const block = element("details");
  block.open = unfolded.has(name);
  block.append(element("summary", "", name), element("pre", "", text));
  block.addEventListener("toggle", () => (block.open ? unfolded.add(name) : unfolded.delete(name)));
  return block;
}

// --- keys

function move(step) {
  const next = shown.indexOf(chosen) + step;
  if (next >= 0 && next < shown.length) choose(shown[next], 0);
}

const KEYS = {
  ArrowLeft: () => showTurn(turnIndex - 1),
  ArrowRight: () => showTurn(turnIndex + 1),
  Home: () => showTurn(0),
  End: () => showTurn(Infinity),
  ArrowUp: () => move(-1),
  ArrowDown: () => move(1),
};

document.addEventListener("keydown", (event) => {
  const isTyping = event.target instanceof Element && event.target.closest("input, select");
  if (isTyping || event.ctrlKey || event.altKey || event.metaKey || event.shiftKey || !KEYS[event.key]) return;
  event.preventDefault();
  KEYS[event.key]();
});

const trials = distinct(records.map((record) => record.trial));
part["trial-label"].hidden = trials.length < 2;
fill(part.trial, trials);
fill(part.iteration, distinct(records.map((record) => record.iteration)).sort((a, b) => a - b));
fill(part.outcome, distinct(["won", "not won", ...records.flatMap((record) => [record.use, record.stop_reason])]));
for (const name of ["trial", "iteration", "outcome", "task"]) part[name].addEventListener("input", filter);
filter();
