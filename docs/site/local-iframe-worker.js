// Search runs in a worker, and a browser starts none for a page that is opened as a file. There it runs in a
// hidden frame instead, which has the same messages: copies, each in a turn of its own.
if (location.protocol === "file:") {
  const later = (data, give) => {
    const copy = structuredClone(data)
    setTimeout(() => give(copy))
  }
  window.Worker = class {
    constructor(script) {
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      this.waiting = []
      document.body.append(this.frame)
      const inside = this.frame.contentWindow
      inside.postMessage = data => later(data, copy => this.onmessage?.({ data: copy }))
      inside.importScripts = () => {}
      const code = inside.document.createElement("script")
      code.src = new URL(script, location.href).href
      code.onload = () => {
        const waiting = this.waiting
        this.waiting = null
        waiting.forEach(data => this.postMessage(data))
      }
      code.onerror = event => this.onerror?.(event)
      inside.document.body.append(code)
    }
    postMessage(data) {
      if (this.waiting) this.waiting.push(data)
      else later(data, copy => this.frame.contentWindow?.dispatchEvent(new MessageEvent("message", { data: copy })))
    }
    terminate() {
      this.frame.remove()
    }
  }
}
