/** A connection on which nothing is heard for long is dead, though nobody has said so (sleep, a firewall). */

export interface Ending {
  onopen: ((event: any) => void) | null;
  onmessage: ((event: any) => void) | null;
  onclose: ((event: any) => void) | null;
  close(): void;
}

const QUIET_CHECKS = 2;

/** How often `check` is to be called; the server says something at least as often. */
export const CHECK_SECONDS = 20;

/** Of one connection after the other. */
export class Quiet {
  private checks = 0; // since something was heard

  /** Something was heard, or a connection begins. */
  heard(): void {
    this.checks = 0;
  }

  /** Give up the connection when it is dead. */
  check(socket: Ending | null): void {
    this.checks += 1;
    if (socket && this.checks > QUIET_CHECKS) {
      const gone = socket.onclose;
      socket.onopen = socket.onmessage = socket.onclose = null;
      socket.close();
      gone?.({});
    }
  }
}
