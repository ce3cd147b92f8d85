// Makes the page quicker. Everything here also works without it, by plain forms and links.
"use strict";

(() => {
  const say = (words) => {
    const place = document.getElementById("spoken");
    place.textContent = "";
    window.setTimeout(() => { place.textContent = words; }, 60);
  };

  // Tables: sort, filter and search by asking for the same address, and taking the table out of the answer.

  let asking = null;

  const swap = async (address, id) => {
    if (asking) asking.abort();
    asking = new AbortController();
    const answer = await fetch(address, { signal: asking.signal, headers: { Accept: "text/html" } });
    if (!answer.ok) { window.location.assign(address); return; }
    const found = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById(id);
    const here = document.getElementById(id);
    if (!found || !here) { window.location.assign(address); return; }
    const focused = here.contains(document.activeElement) ? document.activeElement.textContent : null;
    here.replaceWith(document.adoptNode(found));
    window.history.replaceState(null, "", address);
    markRows();
    if (focused !== null) {
      const again = [...found.querySelectorAll("a")].find((link) => link.textContent === focused);
      if (again) again.focus();
    }
    say(`${found.dataset.found} shown`);
  };

  const quietly = (work) => work.catch((error) => { if (error.name !== "AbortError") throw error; });

  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-swap]");
    const table = link && link.closest("[data-found]");
    if (!table || event.metaKey || event.ctrlKey || event.shiftKey) return;
    event.preventDefault();
    quietly(swap(link.href, table.id));
  });

  for (const form of document.querySelectorAll("form[data-swaps]")) {
    let timer = 0;
    const go = () => {
      const kept = [...new FormData(form)].filter(([, value]) => value !== "");
      const now = new URLSearchParams(window.location.search);
      const mine = armsOf("accept");
      if (mine.length) kept.push(["mine", mine.join("\n")]);
      for (const name of ["sort", "down"]) if (now.get(name)) kept.push([name, now.get(name)]);
      quietly(swap(`${form.getAttribute("action")}?${new URLSearchParams(kept)}`, form.dataset.swaps));
    };
    form.addEventListener("submit", (event) => { event.preventDefault(); window.clearTimeout(timer); go(); });
    form.addEventListener("input", () => { window.clearTimeout(timer); timer = window.setTimeout(go, 220); });
    const button = form.querySelector("button");
    if (button) button.hidden = true;
  }

  // Changes: a dialog instead of a round to the server. They are fields of the form that accepts or records.

  const dialog = document.getElementById("change");
  let changing = null;

  const field = (name, value) => {
    const made = document.createElement("input");
    made.type = "hidden"; made.name = name; made.value = value;
    return made;
  };

  const changesOf = (form) => document.querySelector(`[data-changes="${form}"]`);

  const changeOf = (form, arm) => [...(changesOf(form) || { children: [] }).children]
    .find((item) => item.querySelector("[name=change-arm]").value === arm);

  const armsOf = (form) => [...(changesOf(form) || { children: [] }).children]
    .map((item) => item.querySelector("[name=change-arm]").value);

  // Drafts: what was typed is kept in this tab until it is sent, whatever page one goes to in between.

  const kept = window.sessionStorage, DRAFT = "evenhand-draft/", SENT = "evenhand-sent";

  const typedChanges = (form) => [...changesOf(form.id).children].map((item) => {
    const value = (name) => (item.querySelector(`[name=${name}]`) || { value: "" }).value;
    return { arm: value("change-arm"), action: value("change-action"), why: value("change-why"), planned: item.dataset.planned };
  });

  const keepDraft = (id) => {
    const form = document.getElementById(id);
    if (!form || !form.dataset.draft) return;
    const changes = typedChanges(form), place = form.querySelector("[data-drafted]");
    if (changes.length) kept.setItem(DRAFT + form.dataset.draft, JSON.stringify(changes));
    else kept.removeItem(DRAFT + form.dataset.draft);
    const number = `${changes.length} ${changes.length === 1 ? "change" : "changes"}`;
    place.hidden = !changes.length;
    place.textContent = `${number} not yet ${id === "accept" ? "accepted" : "recorded"}`;
  };

  const restoreDrafts = () => {
    const sent = kept.getItem(SENT);
    kept.removeItem(SENT);
    if (sent && !document.getElementById("refused")) kept.removeItem(sent);
    for (const form of document.querySelectorAll("form[data-draft]")) {
      const old = kept.getItem(DRAFT + form.dataset.draft);
      if (old && !changesOf(form.id).children.length) {
        for (const { arm, action, why, planned } of JSON.parse(old)) {
          const row = document.querySelector(`tr[data-arm="${CSS.escape(arm)}"]`);
          const now = row ? row.dataset.action : planned;
          if (now !== action) addChange(form.id, arm, now, action, why, true);
        }
        say(form.querySelector("[data-drafted]").textContent);
      }
      keepDraft(form.id);
      form.addEventListener("input", () => keepDraft(form.id));
      form.addEventListener("submit", () => { kept.setItem(SENT, DRAFT + form.dataset.draft); });
    }
  };

  // What the plan would use with the changes: the server reckons.

  const reckon = async () => {
    const form = document.getElementById("accept"), here = document.querySelector("#plan .budgets");
    if (!form || !here) return;
    const answer = await fetch("/today/changes", { method: "POST", body: new URLSearchParams(new FormData(form)), headers: { Accept: "text/html" } });
    if (!answer.ok) return;
    const found = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("#plan .budgets");
    if (found) here.replaceWith(document.adoptNode(found));
  };

  const changed = (form) => { markRows(); keepDraft(form); if (form === "accept") quietly(reckon()); };

  const addChange = (form, arm, planned, action, why, quiet = false) => {
    const old = changeOf(form, arm);
    if (old) old.remove();
    const item = document.createElement("li"), gets = form === "accept" ? "gets" : "got";
    item.dataset.planned = planned;
    const words = document.createElement("p");
    const name = document.createElement("strong");
    name.textContent = arm;
    words.append(name, ` ${gets} ${action} instead of ${planned}${why ? `: ${why}` : ""} `);
    const drop = document.createElement("button");
    drop.type = "button"; drop.className = "small"; drop.textContent = "Take back";
    const whose = document.createElement("span");
    whose.className = "unseen"; whose.textContent = ` the change of ${arm}`;
    drop.append(whose);
    drop.addEventListener("click", () => {
      item.remove(); changed(form); say(`${arm} ${gets} ${planned}, as before`);
      const button = document.querySelector(`button[data-change][value="${CSS.escape(arm)}"]`);
      (button || document.getElementById("content")).focus();
    });
    words.append(drop);
    item.append(words, field("change-arm", arm), field("change-action", action));
    if (form === "accept") item.append(field("change-why", why));
    changesOf(form).append(item);
    changed(form);
    if (!quiet) say(`${arm} ${gets} ${action} instead of ${planned}`);
  };

  const markRows = () => {
    for (const button of document.querySelectorAll("button[data-change]")) {
      const row = button.closest("tr");
      const change = changeOf(button.dataset.change, row.dataset.arm);
      let mark = row.querySelector(".mine");
      if (!change) { if (mark) { mark.remove(); row.classList.remove("changed"); } continue; }
      if (!mark) {
        mark = document.createElement("small");
        mark.className = "mine";
        row.querySelector(".action").append(" ", mark);
        row.classList.add("changed");
      }
      mark.textContent = `${button.dataset.change === "accept" ? "to be changed to" : "to be recorded as"} ${change.querySelector("[name=change-action]").value}`;
    }
  };

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-change]");
    if (!button || !dialog || typeof dialog.showModal !== "function") return;
    event.preventDefault();
    const row = button.closest("tr");
    const { arm, action } = row.dataset;
    changing = { form: button.dataset.change, arm, planned: action, button };
    for (const place of dialog.querySelectorAll("[data-of=arm]")) place.textContent = arm;
    dialog.querySelector("[data-of=planned]").textContent = action;
    for (const part of dialog.querySelectorAll("[data-when]")) part.hidden = part.dataset.when !== changing.form;
    const choice = document.getElementById("change-action");
    choice.replaceChildren();
    for (const name of JSON.parse(row.dataset.actions)) {
      if (name === action) continue;
      const option = document.createElement("option");
      option.textContent = name; option.value = name;
      choice.append(option);
    }
    const reason = document.getElementById("change-why");
    const asks = changing.form === "accept";
    document.getElementById("change-reason").hidden = !asks;
    reason.required = asks;
    reason.value = "";
    dialog.returnValue = "";
    dialog.showModal();
    choice.focus();
  });

  if (dialog) {
    dialog.addEventListener("close", () => {
      const { form, arm, planned, button } = changing;
      if (dialog.returnValue === "change") {
        const action = document.getElementById("change-action").value;
        addChange(form, arm, planned, action, document.getElementById("change-why").value.trim());
      }
      if (document.contains(button)) button.focus();
    });
  }

  // Forms: sent once, and saying that they work. Enter in a field sends the form, never one of its rows.

  for (const form of document.querySelectorAll("form[data-busy]")) {
    form.addEventListener("submit", () => {
      say(form.dataset.busy);
      window.setTimeout(() => { for (const button of form.querySelectorAll("button")) button.disabled = true; }, 0);
    });
  }
  window.addEventListener("pageshow", (event) => {
    if (event.persisted) for (const button of document.querySelectorAll("form[data-busy] button")) button.disabled = false;
  });

  // Files: their rows are shown before they are sent.

  for (const input of document.querySelectorAll("input[type=file]")) {
    const note = document.createElement("small");
    note.setAttribute("role", "status");
    input.after(note);
    input.addEventListener("change", async () => {
      const file = input.files[0];
      if (!file) { note.textContent = ""; return; }
      const rows = (await file.text()).split(/\r?\n/).filter((line) => line.trim()).length - 1;
      note.textContent = `${file.name}: ${rows} ${rows === 1 ? "row" : "rows"}`;
    });
  }

  // Sliders beside the numbers that they stand for.

  for (const slider of document.querySelectorAll("input[type=range][data-for]")) {
    const number = document.getElementById(slider.dataset.for);
    slider.closest("[hidden]")?.removeAttribute("hidden");
    slider.addEventListener("input", () => { number.value = slider.value; });
    number.addEventListener("input", () => { slider.value = number.value; });
  }
  for (const slider of document.querySelectorAll("input[type=range][data-choose]")) {
    const choice = document.getElementById(slider.dataset.choose);
    slider.closest("[hidden]")?.removeAttribute("hidden");
    const tell = () => slider.setAttribute("aria-valuetext", choice.options[choice.selectedIndex].textContent);
    slider.addEventListener("input", () => { choice.selectedIndex = Number(slider.value); tell(); });
    choice.addEventListener("input", () => { slider.value = String(choice.selectedIndex); tell(); });
    tell();
  }

  // Long work: its progress comes as events; when it has ended the page is loaded again.

  const work = document.getElementById("work");
  if (work && "EventSource" in window) {
    const source = new EventSource(`/v1/jobs/${encodeURIComponent(work.dataset.job)}/events`);
    let spoken = -1;
    source.addEventListener("progress", (event) => {
      const job = JSON.parse(event.data);
      document.getElementById("progress").value = job.progress;
      document.getElementById("work-words").textContent = job.message;
      const tenth = Math.floor(job.progress * 4);
      if (tenth !== spoken) { spoken = tenth; say(`${Math.round(100 * job.progress)} percent: ${job.message}`); }
    });
    const ended = () => { source.close(); window.location.reload(); };
    for (const kind of ["done", "failed", "cancelled"]) source.addEventListener(kind, ended);
  }

  restoreDrafts();

  // Report an event once, not again after Back; Back from a refused form leads to its view.

  const here = new URL(window.location.href);
  const isForm = here.pathname.startsWith("/today");
  if (isForm || here.searchParams.has("event") || here.searchParams.has("ready")) {
    for (const name of ["event", "ready"]) here.searchParams.delete(name);
    window.history.replaceState(null, "", (isForm ? "/" : here.pathname) + here.search + here.hash);
  }

  // What was refused is read first.

  const refused = document.getElementById("refused");
  if (refused) refused.focus();

  document.documentElement.dataset.ready = "1";
})();
