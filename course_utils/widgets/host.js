// Gives life to widgets on a page that has no kernel: the course's site, also opened from
// disk, or a notebook exported as HTML. The text of link.js stands in front of this one.
// A classic script, because pages opened from disk may not load modules.
(() => {
  "use strict";

  const running = Symbol.for("vit-course.host");
  if (globalThis[running]) {
    globalThis[running].scan();
    return;
  }

  /** What anywidget gives to a widget, without a kernel: the traits, and who listens. */
  class PageModel {
    #traits;
    #listeners = new Map();

    constructor(traits) {
      this.#traits = traits;
    }

    get(name) {
      return this.#traits[name];
    }

    set(name, value) {
      if (Object.is(this.#traits[name], value)) return;
      this.#traits[name] = value;
      for (const listener of [...(this.#listeners.get(`change:${name}`) ?? [])]) listener();
    }

    on(event, listener) {
      if (!this.#listeners.has(event)) this.#listeners.set(event, new Set());
      this.#listeners.get(event).add(listener);
    }

    off(event, listener) {
      this.#listeners.get(event)?.delete(listener);
    }

    save_changes() {}
  }

  const read = (slot, name) =>
    JSON.parse(slot.querySelector(`script.course-widget-${name}`).textContent);

  // On the site a file that several pages share is a script of its own, which leaves its
  // content here; elsewhere the content stands beside the widget.
  const shelf = (globalThis[Symbol.for("vit-course.files")] ??= {});
  const waiting = new Map();

  function fetchFile(digest, address) {
    if (!waiting.has(digest)) {
      const arrival = new Promise((resolve, reject) => {
        const script = document.createElement("script");
        script.onload = resolve;
        script.onerror = () => {
          waiting.delete(digest); // another widget, or another try, asks again
          reject(new Error(`${address.split("/").pop()} did not load.`));
        };
        script.src = address;
        document.head.append(script);
      });
      waiting.set(digest, arrival);
    }
    return waiting.get(digest);
  }

  async function filesOf(slot) {
    const files = read(slot, "files");
    await Promise.all(
      Object.values(files).map(async (file) => {
        if (!file.src) return;
        if (!(file.digest in shelf)) await fetchFile(file.digest, file.src);
        file.content = shelf[file.digest];
      }),
    );
    return files;
  }

  async function mount(slot) {
    const live = document.createElement("div");
    live.className = "course-widget-live";
    try {
      const { module, traits } = read(slot, "state");
      const { default: widget } = await linkModule(module, await filesOf(slot));
      slot.append(live);
      await widget.render({ model: new PageModel(traits), el: live });
      slot.classList.add("course-widget-is-live");
    } catch (error) {
      // The figure stays, and the reader learns why nothing moves.
      live.setAttribute("role", "alert");
      live.style.cssText = "margin:.75rem 0;padding:.75rem 1rem;border:2px solid currentColor";
      live.textContent =
        `This interactive figure could not start. ${error.message} ` +
        "Reload the page to try again.";
      slot.append(live);
    }
  }

  const near = new IntersectionObserver(
    (entries) => {
      for (const { target, isIntersecting } of entries) {
        if (!isIntersecting) continue;
        near.unobserve(target);
        mount(target);
      }
    },
    { rootMargin: "600px 0px" },
  );

  const seen = new WeakSet();
  function scan() {
    for (const slot of document.querySelectorAll("div.course-widget")) {
      if (!seen.has(slot)) near.observe(slot);
      seen.add(slot);
    }
  }

  globalThis[running] = { scan };
  if (document.readyState === "loading") addEventListener("DOMContentLoaded", scan);
  else scan();
})();
