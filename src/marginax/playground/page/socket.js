/**
 * The line to the server. A recording (`recorded.js`) has the same four members, so that the page does not know the
 * difference: `labs()`, `open(listener)`, `send(message)`, `recorded`.
 *
 * @typedef {Object} Setting
 * @property {string} name
 * @property {string} label
 * @property {"choice"|"number"|"integer"|"flag"|"points"|"numbers"} kind
 * @property {*} default
 * @property {string} help
 * @property {number} least
 * @property {number} most
 * @property {boolean} log
 * @property {{value: string, label: string}[]} choices
 * @property {number} columns
 * @property {number} max_length
 * @property {Object<string, Array>} when
 *
 * @typedef {{name: string, title: string, about: string, settings: Setting[]}} Lab
 * @typedef {{message: function(Object): void, connection: function("opening"|"ready"|"lost"): void}} Listener
 */

const FIRST_WAIT = 400;
const LONGEST_WAIT = 5000;

export class Live {
  recorded = false;

  /** @param {string} token from the address of the page */
  constructor(token) {
    this.token = token;
    this.socket = null;
    this.wait = FIRST_WAIT;
  }

  /** @returns {Promise<{version: string, labs: Lab[]}>} */
  async labs() {
    const answer = await fetch(`labs.json?token=${encodeURIComponent(this.token)}`);
    if (!answer.ok) throw new Error(await answer.text());
    return answer.json();
  }

  /** @param {Listener} listener */
  open(listener) {
    this.listener = listener;
    this.#connect();
  }

  #connect() {
    const address = new URL(`ws?token=${encodeURIComponent(this.token)}`, location.href);
    address.protocol = location.protocol === "https:" ? "wss:" : "ws:";
    address.hash = "";
    this.listener.connection("opening");
    const socket = new WebSocket(address);
    this.socket = socket;
    socket.onmessage = (event) => {
      const message = JSON.parse(event.data);
      if (message.type === "ready") {
        this.wait = FIRST_WAIT;
        this.listener.connection("ready");
      }
      this.listener.message(message);
    };
    socket.onclose = () => {
      if (this.socket !== socket) return;
      this.listener.connection("lost");
      setTimeout(() => this.#connect(), this.wait);
      this.wait = Math.min(this.wait * 1.7, LONGEST_WAIT);
    };
  }

  /**
   * @param {Object} message
   * @returns {boolean} whether it was sent
   */
  send(message) {
    if (this.socket?.readyState !== WebSocket.OPEN) return false;
    this.socket.send(JSON.stringify(message));
    return true;
  }
}
