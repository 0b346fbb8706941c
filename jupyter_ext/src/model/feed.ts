/**
 * Updates a state store over a websocket, or by polling where proxies allow no websocket.
 * Network and clock are parameters, so that tests need neither.
 */
import { StateStore } from './state_store';
import { ClosableSocket, Heartbeat } from './heartbeat';
import { Frame } from './types';

export type Socket = ClosableSocket;

export interface StreamEnvironment {
  /** Opens a websocket at a position. */
  socket(query: string): Socket;
  /** Requests one frame. */
  poll(query: string): Promise<Frame>;
  later(seconds: number, call: () => void): unknown;
  cancel(timer: any): void;
}

export type FeedState = 'connecting' | 'live' | 'polling' | 'lost';

const FIRST_WAIT_SECONDS = 0.25;
const MAX_WAIT_SECONDS = 10;
const SOCKETS_BEFORE_POLLING = 3;
const POLLS_BEFORE_SOCKET = 10;

export class Feed {
  state: FeedState = 'connecting';
  private socket: Socket | null = null;
  private timer: unknown = null;
  private wait = FIRST_WAIT_SECONDS;
  private refusedSockets = 0;
  private closed = false;
  private heartbeat = new Heartbeat();

  constructor(
    private store: StateStore,
    private environment: StreamEnvironment
  ) {}

  start(): void {
    this.connect();
  }

  /** Closes the connection for good. */
  close(): void {
    this.closed = true;
    this.environment.cancel(this.timer);
    this.socket?.close();
  }

  /** Closes a dead connection; the caller must call this every CHECK_SECONDS. */
  check(): void {
    this.heartbeat.check(this.socket);
  }

  private query(): string {
    return `board=${encodeURIComponent(this.store.id)}&after=${this.store.version}`;
  }

  private connect(): void {
    const socket = this.environment.socket(this.query());
    let opened = false;
    this.socket = socket;
    this.heartbeat.reset();
    socket.onopen = () => {
      opened = true;
      this.refusedSockets = 0;
      this.setState('live');
    };
    socket.onmessage = event => {
      this.wait = FIRST_WAIT_SECONDS;
      this.heartbeat.reset();
      this.store.apply(JSON.parse(event.data) as Frame);
    };
    socket.onclose = () => this.onLoss(opened);
  }

  private onLoss(opened: boolean): void {
    if (this.closed) {
      return;
    }
    this.socket = null;
    this.refusedSockets += opened ? 0 : 1;
    if (this.refusedSockets >= SOCKETS_BEFORE_POLLING) {
      void this.poll(POLLS_BEFORE_SOCKET);
      return;
    }
    this.setState('lost');
    this.retry(() => this.connect());
  }

  private async poll(pollsLeft: number): Promise<void> {
    try {
      const frame = await this.environment.poll(this.query());
      if (this.closed) {
        return;
      }
      this.wait = FIRST_WAIT_SECONDS;
      this.setState('polling');
      this.store.apply(frame);
    } catch {
      if (this.closed) {
        return;
      }
      this.setState('lost');
      this.retry(() => this.connect());
      return;
    }
    const next = pollsLeft > 0 ? () => void this.poll(pollsLeft - 1) : () => this.connect();
    this.timer = this.environment.later(0, next);
  }

  private retry(call: () => void): void {
    this.timer = this.environment.later(this.wait, call);
    this.wait = Math.min(MAX_WAIT_SECONDS, this.wait * 2);
  }

  private setState(state: FeedState): void {
    if (this.state !== state) {
      this.state = state;
      this.store.changed();
    }
  }
}
