/** Detects a dead connection: no message for some time, without an error (after sleep, or behind a firewall). */

export interface ClosableSocket {
  onopen: ((event: any) => void) | null;
  onmessage: ((event: any) => void) | null;
  onclose: ((event: any) => void) | null;
  close(): void;
}

const QUIET_CHECKS = 2;

/** How often `check` must be called; the server sends a message at least as often. */
export const CHECK_SECONDS = 20;

/** Watches the current connection. */
export class Heartbeat {
  private checks = 0; // since the last message

  /** Records a message, or a new connection. */
  reset(): void {
    this.checks = 0;
  }

  /** Closes the connection if it is dead. */
  check(socket: ClosableSocket | null): void {
    this.checks += 1;
    if (socket && this.checks > QUIET_CHECKS) {
      const onClose = socket.onclose;
      socket.onopen = socket.onmessage = socket.onclose = null;
      socket.close();
      onClose?.({});
    }
  }
}
