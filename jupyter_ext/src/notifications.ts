/** Notifies the user of the end of tasks, the eviction of this container, messages, and a newer panel. */
import { Notification } from '@jupyterlab/apputils';

import { Me } from './model/api_types';
import { saveAll } from './active_document';
import { Lab, PLUGIN } from './lab_services';
import { TaskNotification, notificationFor } from './model/task_notifications';
import { TaskRow } from './model/types';
import { Options } from './options';
import { Context } from './ui/context';

const LAST_READ = `${PLUGIN}:seen`;
const MESSAGES_SECONDS = 300;
const VISIBLE_MS = 8000;
/** Notifications of this time are shown together: one that is not drawn yet cannot be updated. */
const BATCH_MS = 500;

export class Notifications {
  me: Me | null = null;
  unread = 0;
  private lastNotice = '';
  private build = '';
  private up = false;
  private pending: TaskNotification[] = [];
  private shownNotices = new Map<string, { notice: string; more: number; at: number }>();

  constructor(
    private lab: Lab,
    private options: Options,
    private context: () => Context
  ) {}

  /** Starts to listen, once there is a context. */
  start(): void {
    const { store } = this.context();
    store.watch((before, after) => this.onTaskChange(before, after));
    store.listen(() => this.onStoreChange());
    window.setInterval(() => store.link.up && !document.hidden && void this.loadMessages(), MESSAGES_SECONDS * 1000);
    this.onStoreChange();
  }

  /** Marks all messages as read. */
  markMessagesRead(): void {
    this.unread = 0;
    void this.lab.state?.save(LAST_READ, Date.now());
    this.context().store.changed();
  }

  private onTaskChange(before: TaskRow | undefined, after: TaskRow): void {
    const notification = this.options.notifyEnd ? notificationFor(before, after, this.me?.user ?? '') : null;
    if (notification && this.pending.push(notification) === 1) {
      window.setTimeout(() => this.showAll(), BATCH_MS);
    }
  }

  private showAll(): void {
    const all = this.pending;
    this.pending = [];
    const texts = new Set(all.map(notification => notification.text));
    texts.forEach(text => this.show(all.filter(notification => notification.text === text)));
  }

  /** Names the newest task and counts the others, also those of a visible notification, so that the end of a sweep does not cover the page. */
  private show(group: TaskNotification[]): void {
    const { translate, shell } = this.context();
    const { kind, text, task } = group.at(-1)!;
    const last = this.shownNotices.get(text);
    const before = last && Date.now() - last.at < VISIBLE_MS ? last.more + 1 : 0;
    const more = before + group.length - 1;
    const message = translate(text, { id: task.id, name: task.name, why: task.why ?? '' }) + (more ? ` (+${more})` : '');
    const options = {
      autoClose: kind === 'error' ? (false as const) : VISIBLE_MS,
      actions: [{ label: translate('Open'), callback: () => shell.openTask(task.id) }]
    };
    const updated = before > 0 && Notification.update({ id: last!.notice, message, type: kind, ...options });
    const notice = updated ? last!.notice : Notification.emit(message, kind, options);
    this.shownNotices.set(text, { notice, more, at: Date.now() });
  }

  private onStoreChange(): void {
    const { store } = this.context();
    const notice = store.notice ? JSON.stringify(store.notice) : '';
    const isAhead = (store.notice?.ends_at ?? 0) * 1000 > Date.now();
    if (notice && notice !== this.lastNotice && isAhead && this.options.saveOnNotice) {
      void this.saveBeforeEviction(store.notice!.reason);
    }
    this.lastNotice = notice;
    if (this.build && store.build !== this.build) {
      this.warnOutdatedPanel();
    }
    this.build = store.build;
    if (store.link.up && !this.up) {
      void this.loadUser();
      void this.loadMessages();
    }
    this.up = store.link.up;
  }

  private warnOutdatedPanel(): void {
    const { translate } = this.context();
    const actions = [{ label: translate('Reload'), callback: () => window.location.reload() }];
    const text = translate('The panel of HAI was renewed on the server; this page has the old one.');
    Notification.warning(text, { autoClose: false, actions });
  }

  private async saveBeforeEviction(reason: string): Promise<void> {
    const { api, translate, shell } = this.context();
    const saved = await saveAll(this.lab.app, this.lab.documents);
    await api.saved().catch(error => shell.fail(error));
    const text = translate('This container will be taken back: {reason}. {n} documents were saved.', { reason, n: saved });
    Notification.warning(text, { autoClose: false });
  }

  private async loadUser(): Promise<void> {
    this.me = await this.context().api.me().catch(() => this.me);
    this.context().store.changed();
  }

  private async loadMessages(): Promise<void> {
    const lastRead = Number((await this.lab.state?.fetch(LAST_READ)) ?? 0);
    const messages = await this.context().api.messages().catch(() => []);
    this.unread = messages.filter(message => Date.parse(message.create_time) > lastRead).length;
    this.context().store.changed();
  }
}
