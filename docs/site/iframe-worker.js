/* No browser starts a worker from a file.  Where the pages are opened as files, the search runs in a frame instead. */

if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      document.body.append(this.frame)
      const inside = this.frame.contentWindow
      inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }))
      this.loaded = new Promise(loaded => {
        const script = inside.document.createElement("script")
        script.src = url
        script.onload = () => loaded(inside)
        inside.document.body.append(script)
      })
    }

    async postMessage(data) {
      const inside = await this.loaded
      inside.dispatchEvent(new inside.MessageEvent("message", { data }))
    }

    terminate() {
      this.frame.remove()
    }
  }
}
