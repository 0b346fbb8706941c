/** Pages of tasks in the main area: one for each task, and one that shows the log of the task selected in the list. */
import { MainAreaWidget, WidgetTracker } from '@jupyterlab/apputils';
import { DocumentRegistry } from '@jupyterlab/docregistry';

import { haiIcon } from './icons';
import { Lab } from './lab_services';
import { Context } from './ui/context';
import { TaskPage } from './ui/task_page';

type Page = MainAreaWidget<TaskPage>;

export class TaskPages {
  private tracker = new WidgetTracker<Page>({ namespace: 'hai-task' });
  private follower: Page | null = null;

  constructor(
    private lab: Lab,
    private context: () => Context
  ) {}

  /** Shows the page of a task, on one of its tabs. */
  open(id: number, tab = 'overview', rank = ''): void {
    const page = this.tracker.find(page => page.content.task === id) ?? this.create(id, tab);
    this.attach(page, {});
    page.content.showTask(id, tab, rank);
    this.lab.app.shell.activateById(page.id);
  }

  /** Shows the log of a task beside the list, which keeps the keyboard. */
  follow(id: number): void {
    if (!this.follower || this.follower.isDisposed) {
      this.follower = this.widget('hai-follower', id, 'logs');
    }
    this.follower.content.showTask(id, 'logs');
    this.follower.title.label = this.name(id);
    this.attach(this.follower, { mode: 'split-right', activate: false });
  }

  /** Restores the pages that were open when Lab was closed. */
  restore(): void {
    void this.lab.restorer?.restore(this.tracker, {
      command: 'hai:open-task',
      args: widget => ({ id: widget.content.task }),
      name: widget => String(widget.content.task)
    });
  }

  private create(id: number, tab: string): Page {
    const page = this.widget(`hai-task-${id}`, id, tab);
    void this.tracker.add(page);
    return page;
  }

  private widget(name: string, id: number, tab: string): Page {
    const page = new MainAreaWidget({ content: new TaskPage(this.context(), id, tab) });
    page.id = name;
    page.title.label = this.name(id);
    page.title.icon = haiIcon;
    page.title.closable = true;
    return page;
  }

  private attach(page: Page, options: DocumentRegistry.IOpenOptions): void {
    if (!page.isAttached) {
      this.lab.app.shell.add(page, 'main', options);
    }
  }

  private name(id: number): string {
    return this.context().store.tasks.get(id)?.name ?? `#${id}`;
  }
}
