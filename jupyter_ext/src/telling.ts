/** What the user is told without asking: his tasks that end, a container that has to leave, messages, a newer panel. */
import { Notification } from '@jupyterlab/apputils';

import { Me } from './model/answers';
import { saveAll } from './documents';
import { Lab, PLUGIN } from './lab';
import { News, news } from './model/news';
import { TaskRow } from './model/types';
import { Options } from './options';
import { Context } from './ui/context';

const SEEN = `${PLUGIN}:seen`;
const MESSAGES_SECONDS = 300;
const SHOWN_MS = 8000;
/** A notice that was just made and is not drawn yet takes no change. */
const GATHERED_MS = 500;

export class Telling {
  me: Me | null = null;
  unread = 0;
  private noticed = '';
  private build = '';
  private up = false;
  private gathered: News[] = [];
  private told = new Map<string, { notice: string; more: number; at: number }>();

  constructor(
    private lab: Lab,
    private options: Options,
    private context: () => Context
  ) {}

  /** Begin, once there is a context. */
  start(): void {
    const { board } = this.context();
    board.watch((before, after) => this.changed(before, after));
    board.listen(() => this.look());
    window.setInterval(() => board.link.up && !document.hidden && void this.lookForMessages(), MESSAGES_SECONDS * 1000);
    this.look();
  }

  /** Messages were looked at. */
  seen(): void {
    this.unread = 0;
    void this.lab.state?.save(SEEN, Date.now());
    this.context().board.changed();
  }

  private changed(before: TaskRow | undefined, after: TaskRow): void {
    const found = this.options.notifyEnd ? news(before, after, this.me?.user ?? '') : null;
    if (found && this.gathered.push(found) === 1) {
      window.setTimeout(() => this.tellAll(), GATHERED_MS);
    }
  }

  private tellAll(): void {
    const all = this.gathered;
    this.gathered = [];
    new Set(all.map(one => one.text)).forEach(text => this.tell(all.filter(one => one.text === text)));
  }

  /** The newest of these is named, the rest counted, also what is shown still: notices of a sweep that ends would cover the page. */
  private tell(alike: News[]): void {
    const { say, shell } = this.context();
    const { kind, text, task } = alike.at(-1)!;
    const last = this.told.get(text);
    const before = last && Date.now() - last.at < SHOWN_MS ? last.more + 1 : 0;
    const more = before + alike.length - 1;
    const message = say(text, { id: task.id, name: task.name, why: task.why ?? '' }) + (more ? ` (+${more})` : '');
    const options = {
      autoClose: kind === 'error' ? (false as const) : SHOWN_MS,
      actions: [{ label: say('Open'), callback: () => shell.openTask(task.id) }]
    };
    const again = before > 0 && Notification.update({ id: last!.notice, message, type: kind, ...options });
    const notice = again ? last!.notice : Notification.emit(message, kind, options);
    this.told.set(text, { notice, more, at: Date.now() });
  }

  private look(): void {
    const { board } = this.context();
    const notice = board.notice ? JSON.stringify(board.notice) : '';
    const ahead = (board.notice?.ends_at ?? 0) * 1000 > Date.now();
    if (notice && notice !== this.noticed && ahead && this.options.saveOnNotice) {
      void this.leave(board.notice!.reason);
    }
    this.noticed = notice;
    if (this.build && board.build !== this.build) {
      this.renewed();
    }
    this.build = board.build;
    if (board.link.up && !this.up) {
      void this.whoAmI();
      void this.lookForMessages();
    }
    this.up = board.link.up;
  }

  private renewed(): void {
    const { say } = this.context();
    const actions = [{ label: say('Reload'), callback: () => window.location.reload() }];
    const text = say('The panel of HAI was renewed on the server; this page has the old one.');
    Notification.warning(text, { autoClose: false, actions });
  }

  private async leave(reason: string): Promise<void> {
    const { api, say, shell } = this.context();
    const saved = await saveAll(this.lab.app, this.lab.documents);
    await api.saved().catch(error => shell.fail(error));
    const text = say('This container will be taken back: {reason}. {n} documents were saved.', { reason, n: saved });
    Notification.warning(text, { autoClose: false });
  }

  private async whoAmI(): Promise<void> {
    this.me = await this.context().api.me().catch(() => this.me);
    this.context().board.changed();
  }

  private async lookForMessages(): Promise<void> {
    const seen = Number((await this.lab.state?.fetch(SEEN)) ?? 0);
    const found = await this.context().api.messages().catch(() => []);
    this.unread = found.filter(message => Date.parse(message.create_time) > seen).length;
    this.context().board.changed();
  }
}
