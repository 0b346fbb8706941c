/** Renders a task in a notebook: the panel updates the output of a magic, without the kernel. */
import { IRenderMime } from '@jupyterlab/rendermime-interfaces';
import { ReactWidget } from '@jupyterlab/ui-components';
import * as React from 'react';

import { Context, useStore, useLoaded, useNow } from './ui/context';
import { Silent, Status, TaskLink, Verbs } from './ui/common';
import { durationText } from './model/format';

export const MIME = 'application/vnd.hai.task+json';

class LiveTask extends ReactWidget implements IRenderMime.IRenderer {
  private task = 0;

  constructor(private context: Context) {
    super();
    this.addClass('hai-live');
  }

  async renderModel(model: IRenderMime.IMimeModel): Promise<void> {
    const data = model.data[MIME] as { id?: unknown } | undefined;
    this.task = Number(data?.id ?? 0);
    this.update();
  }

  protected override render(): JSX.Element {
    return <Card key={this.task} context={this.context} id={this.task} />;
  }
}

function Card(props: { context: Context; id: number }): JSX.Element {
  const { context, id } = props;
  useStore(context);
  const now = useNow();
  const current = context.store.tasks.get(id);
  const loaded = useLoaded(() => (current || !id ? Promise.resolve(null) : context.api.task(id)), [id, current === undefined]);
  const row = current ?? loaded.value?.row;
  if (!row) {
    return <span className="hai-dim">{loaded.error?.message ?? `#${id} …`}</span>;
  }
  return (
    <div className="hai-card">
      <div className="hai-row-head">
        <TaskLink context={context} row={row} />
        <Verbs task={row} context={context} words />
        <Status task={row} context={context} />
      </div>
      <div className="hai-dim">
        <Silent task={row} context={context} now={now} />
        #{row.id} · {row.nodes}×{row.group} · {durationText(row, now)} {row.why ? `· ${row.why}` : ''}
      </div>
    </div>
  );
}

/** Returns the renderer of tasks in outputs. */
export function rendererFactory(context: Context): IRenderMime.IRendererFactory {
  return { safe: true, mimeTypes: [MIME], defaultRank: 10, createRenderer: () => new LiveTask(context) };
}
