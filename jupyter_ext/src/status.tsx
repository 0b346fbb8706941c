/** The item in the status bar: memory of this container, running tasks, unread messages. */
import { ReactWidget } from '@jupyterlab/ui-components';
import * as React from 'react';

import { stateStyle } from './model/state_style';
import { bytes } from './model/format';
import { Context, useStore, useLoaded } from './ui/context';

const MEMORY_SECONDS = 10;

export class StatusItem extends ReactWidget {
  constructor(
    private context: Context,
    private open: (tab: string) => void
  ) {
    super();
    this.addClass('hai-status-item');
  }

  protected override render(): JSX.Element {
    return <Item context={this.context} open={this.open} />;
  }
}

function Item(props: { context: Context; open: (tab: string) => void }): JSX.Element {
  const { context, open } = props;
  useStore(context);
  const [turn, setTurn] = React.useState(0);
  const memory = useLoaded(() => context.api.memory(), [turn]);
  React.useEffect(() => {
    const timer = window.setInterval(() => !document.hidden && setTurn(n => n + 1), MEMORY_SECONDS * 1000);
    return () => window.clearInterval(timer);
  }, []);
  const { running, waiting } = context.store.counts();
  const unread = context.unread.count();
  const usage = memory.value;
  const full = usage !== null && usage.limit > 0 && usage.used >= 0.9 * usage.limit;
  return (
    <>
      {usage && usage.limit > 0 && (
        <span className={full ? 'hai-full-text' : ''} title={context.translate('Memory of this {of}', { of: usage.of })}>
          {full ? '⚠ ' : ''}
          {bytes(usage.used)} / {bytes(usage.limit)}
        </span>
      )}
      <button className="hai-status-button" onClick={() => open('tasks')} title={context.translate('Tasks of the cluster')}>
        {context.store.link.up ? `${stateStyle('RUNNING').glyph} ${running} ${stateStyle('WAITING').glyph} ${waiting}` : context.translate('HAI: no connection')}
      </button>
      {unread > 0 && (
        <button className="hai-status-button" onClick={() => open('messages')} title={context.translate('Messages')}>
          ✉ {unread}
        </button>
      )}
    </>
  );
}
