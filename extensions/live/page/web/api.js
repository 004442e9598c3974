// Client for /api/v1/, relative to the page. It detects whether the exporter answers.

const base = new URL('api/v1/', document.baseURI);
const TIMEOUT = 8000; // ms for an answer
const SILENCE = 8000; // ms without an answer until the exporter counts as gone
const POLL = 3000;

// A Link is the connection to the exporter. Callbacks: on(kind, data) for each stream event, and
// state() when the exporter starts or stops answering.
export class Link {
  constructor({ on, state }) {
    this.on = on;
    this.changed = state;
    this.up = false;
    this.answered = 0; // time of the last answer, local clock
    this.source = null;
    this.retry = 0;
    this.timer = 0;
    this.query = null;
    this.problem = ''; // why the exporter ended the stream
  }

  // get requests a path with parameters: {device: 'x', field: ['a', 'b']}. It rejects with a
  // message for the user.
  async get(path, parameters = {}) {
    let response;
    try {
      response = await fetch(address(path, parameters), { signal: AbortSignal.timeout(TIMEOUT), cache: 'no-store' });
    } catch (error) {
      if (!this.#recent()) this.#set(false);
      throw new Error('the exporter does not answer', { cause: error });
    }
    const problem = response.ok ? null : await response.json().catch(() => null);
    if (!response.ok && !problem && response.status >= 502) { // a proxy answered
      this.#set(false);
      throw new Error(`the exporter does not answer (${response.status} of a proxy)`);
    }
    this.#heard();
    if (!response.ok) {
      const error = new Error(problem?.detail || `${path}: status ${response.status}`);
      error.status = response.status;
      throw error;
    }
    return response.json();
  }

  // stream opens the stream of rows and closes the previous one.
  stream(parameters) {
    this.query = parameters;
    this.#open();
  }

  // pause closes the stream until resume, while the page is hidden.
  pause() {
    this.#close();
    this.paused = true;
  }

  resume() {
    if (!this.paused) return;
    this.paused = false;
    if (this.query) this.#open();
  }

  // watch polls a path every few seconds, which also shows whether the exporter answers.
  watch(path, take) {
    const ask = async () => {
      if (!this.paused) {
        try {
          take(await this.get(path));
        } catch {
          // get has recorded the failure
        }
        if (this.up && Date.now() - this.answered > SILENCE) this.#set(false);
      }
      setTimeout(ask, POLL);
    };
    ask();
  }

  // #recent reports whether the stream is open and has sent something recently.
  #recent() { return Date.now() - this.answered < SILENCE && this.source?.readyState === EventSource.OPEN; }

  #heard() {
    this.answered = Date.now();
    if (!this.up) this.#set(true);
  }

  #set(up) {
    if (this.up === up && this.known) return;
    this.known = true;
    this.up = up;
    this.changed(up);
  }

  #close() {
    clearTimeout(this.timer);
    this.source?.close();
    this.source = null;
  }

  #open() {
    if (this.paused) return;
    this.#close();
    const source = this.source = new EventSource(address('stream', this.query));
    source.onopen = () => {
      this.retry = 0;
      this.problem = '';
      this.#heard();
      this.on('open');
    };
    for (const kind of ['columns', 'rows', 'devices', 'event']) {
      source.addEventListener(kind, (e) => {
        this.#heard();
        this.on(kind, JSON.parse(e.data));
      });
    }
    source.addEventListener('problem', (e) => { this.problem = JSON.parse(e.data).detail; });
    // Retry here, because the browser's own retry gives up on some errors.
    source.onerror = () => {
      if (this.source !== source) return;
      this.#close();
      this.retry = Math.min(this.retry + 1, 5);
      this.timer = setTimeout(() => this.#open(), this.retry * 1000);
      this.get('health').catch(() => this.#set(false));
    };
  }
}

function address(path, parameters) {
  const url = new URL(path, base);
  for (const [name, value] of Object.entries(parameters)) {
    for (const v of [value].flat()) url.searchParams.append(name, v);
  }
  return url;
}
