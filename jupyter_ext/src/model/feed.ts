/**
 * Keeps a state store up to date: over a websocket, or by polling where proxies allow none.
 * Everything that touches the network or the clock is passed in, so that tests need neither.
 */
import { StateStore } from './state_store';
import { ClosableSocket, Heartbeat } from './heartbeat';
import { Frame } from './types';

export type Socket = ClosableSocket;

export interface StreamEnvironment {
  /** Open a websocket at a position. */
  socket(query: string): Socket;
  /** Ask once; resolves with a frame. */
  poll(query: string): Promise<Frame>;
  later(seconds: number, call: () => void): unknown;
  cancel(timer: any): void;
}

export type FeedState = 'connecting' | 'live' | 'polling' | 'lost';

const FIRST_WAIT = 0.25;
const LONGEST_WAIT = 10;
const SOCKETS_BEFORE_POLLING = 3;
const POLLS_BEFORE_SOCKET = 10;

export class Feed {
  state: FeedState = 'connecting';
  private socket: Socket | null = null;
  private timer: unknown = null;
  private wait = FIRST_WAIT;
  private refused = 0;
  private closed = false;
  private heartbeat = new Heartbeat();

  constructor(
    private store: StateStore,
    private outside: StreamEnvironment
  ) {}

  start(): void {
    this.connect();
  }

  /** Closes the connection for good. */
  close(): void {
    this.closed = true;
    this.outside.cancel(this.timer);
    this.socket?.close();
  }

  /** Closes a dead connection; to be called every CHECK_SECONDS. */
  check(): void {
    this.heartbeat.check(this.socket);
  }

  private query(): string {
    return `board=${encodeURIComponent(this.store.id)}&after=${this.store.version}`;
  }

  private connect(): void {
    const socket = this.outside.socket(this.query());
    let opened = false;
    this.socket = socket;
    this.heartbeat.reset();
    socket.onopen = () => {
      opened = true;
      this.refused = 0;
      this.became('live');
    };
    socket.onmessage = event => {
      this.wait = FIRST_WAIT;
      this.heartbeat.reset();
      this.store.apply(JSON.parse(event.data) as Frame);
    };
    socket.onclose = () => this.lost(opened);
  }

  private lost(opened: boolean): void {
    if (this.closed) {
      return;
    }
    this.socket = null;
    this.refused += opened ? 0 : 1;
    if (this.refused >= SOCKETS_BEFORE_POLLING) {
      void this.poll(POLLS_BEFORE_SOCKET);
      return;
    }
    this.became('lost');
    this.again(() => this.connect());
  }

  private async poll(pollsLeft: number): Promise<void> {
    try {
      const frame = await this.outside.poll(this.query());
      if (this.closed) {
        return;
      }
      this.wait = FIRST_WAIT;
      this.became('polling');
      this.store.apply(frame);
    } catch {
      if (this.closed) {
        return;
      }
      this.became('lost');
      this.again(() => this.connect());
      return;
    }
    const next = pollsLeft > 0 ? () => void this.poll(pollsLeft - 1) : () => this.connect();
    this.timer = this.outside.later(0, next);
  }

  private again(call: () => void): void {
    this.timer = this.outside.later(this.wait, call);
    this.wait = Math.min(LONGEST_WAIT, this.wait * 2);
  }

  private became(state: FeedState): void {
    if (this.state !== state) {
      this.state = state;
      this.store.changed();
    }
  }
}
