// Lets search work from a disk. Browsers start no Worker for a file:// page, so its script runs in
// a frame instead. Zensical would load such a shim from another site; this one is ours, and knows
// just what its search needs. On a server it does nothing.
if (location.protocol === "file:") {
  window.Worker = class {
    constructor(url) {
      this.onmessage = this.onerror = null;
      this.early = [];
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inside = this.frame.contentWindow;
      inside.postMessage = (data) => setTimeout(() => this.onmessage?.({ data }));
      const script = inside.document.createElement("script");
      script.src = new URL(url, location.href).href;
      script.onload = () => {
        for (const data of this.early.splice(0)) inside.onmessage({ data });
        this.early = null;
      };
      script.onerror = (event) => this.onerror?.(event);
      inside.document.head.append(script);
    }

    postMessage(data) {
      const copy = structuredClone(data);
      if (this.early) this.early.push(copy);
      else setTimeout(() => this.frame.contentWindow?.onmessage({ data: copy }));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
