/** The right end of the status bar: memory of this container, tasks that run, messages that were not read. */
import { ReactWidget } from '@jupyterlab/ui-components';
import * as React from 'react';

import { stateStyle } from './model/state_style';
import { bytes } from './model/words';
import { Context, useBoard, useLoaded } from './ui/context';

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
  useBoard(context);
  const [turn, setTurn] = React.useState(0);
  const memory = useLoaded(() => context.api.memory(), [turn]);
  React.useEffect(() => {
    const timer = window.setInterval(() => !document.hidden && setTurn(n => n + 1), MEMORY_SECONDS * 1000);
    return () => window.clearInterval(timer);
  }, []);
  const { running, waiting } = context.board.numbers();
  const unread = context.unread.count();
  const used = memory.value;
  const full = used !== null && used.limit > 0 && used.used >= 0.9 * used.limit;
  return (
    <>
      {used && used.limit > 0 && (
        <span className={full ? 'hai-full-text' : ''} title={context.say('Memory of this {of}', { of: used.of })}>
          {full ? '⚠ ' : ''}
          {bytes(used.used)} / {bytes(used.limit)}
        </span>
      )}
      <button className="hai-status-button" onClick={() => open('tasks')} title={context.say('Tasks of the cluster')}>
        {context.board.link.up ? `${stateStyle('RUNNING').glyph} ${running} ${stateStyle('WAITING').glyph} ${waiting}` : context.say('HAI: no connection')}
      </button>
      {unread > 0 && (
        <button className="hai-status-button" onClick={() => open('messages')} title={context.say('Messages')}>
          ✉ {unread}
        </button>
      )}
    </>
  );
}
