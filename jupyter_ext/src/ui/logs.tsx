/** Shows the live log of a task: the visible part of a bounded buffer. */
import * as React from 'react';

import { Line, Lines, parsePieces, search } from '../model/log_lines';
import { CHECK_SECONDS, Heartbeat } from '../model/heartbeat';
import { LogRow, TaskRow } from '../model/types';
import { visibleRows } from '../model/visible_rows';
import { clock } from '../model/format';
import { Context } from './context';
import { useHeight } from './virtual_list';
import { Empty } from './common';

const ROW_HEIGHT = 18;
const MAX_LINES = 100_000;
const FIRST_WAIT_SECONDS = 0.25;

interface Tail {
  lines: Lines;
  turn: number;
  state: string;
}

/** The whole log from its beginning, followed until the task ends. */
export default function Logs(props: { context: Context; row: TaskRow; first: string }): JSX.Element {
  const { context, row } = props;
  const [rank, setRank] = React.useState(props.first);
  const [wrap, setWrap] = React.useState(false);
  const [times, setTimes] = React.useState(false);
  const [text, setText] = React.useState('');
  const [at, setAt] = React.useState(0);
  const tail = useTail(context, row.id, rank);
  const hits = React.useMemo(() => search(tail.lines.all, text), [tail.turn, text]);
  const jump = hits.length ? hits[((at % hits.length) + hits.length) % hits.length]! : -1;
  const ranks = Array.from({ length: row.nodes }, (_, i) => String(i));
  return (
    <div className="hai-tab">
      <div className="hai-bar hai-log-bar">
        <select className="hai-input" aria-label={context.translate('Rank')} value={rank} onChange={event => setRank(event.target.value)}>
          <option value="">{context.translate('All ranks')}</option>
          {ranks.map(i => (
            <option key={i} value={i}>
              {context.translate('Rank {n}', { n: i })}
            </option>
          ))}
        </select>
        <input
          className="hai-input"
          type="search"
          placeholder={context.translate('Search')}
          aria-label={context.translate('Search')}
          value={text}
          onChange={event => setText(event.target.value)}
          onKeyDown={event => event.key === 'Enter' && setAt(at + (event.shiftKey ? -1 : 1))}
        />
        {text && <span className="hai-dim">{hits.length}</span>}
        <Toggle label={context.translate('Times')} on={times} set={setTimes} />
        <Toggle label={context.translate('Wrap')} on={wrap} set={setWrap} />
        <a className="hai-button hai-button-small" href={context.api.logUrl(row.id)} download>
          {context.translate('Download')}
        </a>
        <span className="hai-dim hai-log-state">{context.translate(tail.state)}</span>
      </div>
      {tail.lines.dropped > 0 && (
        <div className="hai-dim hai-bar">
          {context.translate('The first {n} lines are only in the download.', { n: tail.lines.dropped })}
        </div>
      )}
      {tail.lines.all.length === 0 ? (
        <Empty>{context.translate(row.runs ? 'No output yet.' : 'It has not run yet.')}</Empty>
      ) : (
        <View tail={tail} wrap={wrap} times={times} jump={jump} many={row.nodes > 1} context={context} />
      )}
    </div>
  );
}

function Toggle(props: { label: string; on: boolean; set: (on: boolean) => void }): JSX.Element {
  return (
    <button className="hai-button hai-button-small" aria-pressed={props.on} onClick={() => props.set(!props.on)}>
      {props.label}
    </button>
  );
}

/** Follows a log over one websocket, which is opened again at the last cursor, so no line is lost or repeated. */
function useTail(context: Context, id: number, rank: string): Tail {
  const lines = React.useMemo(() => new Lines(MAX_LINES), [id, rank]);
  const [tail, setTail] = React.useState({ turn: 0, state: 'Connecting …' });
  React.useEffect(() => {
    let cursor = '';
    let wait = FIRST_WAIT_SECONDS;
    let timer = 0;
    let planned = 0;
    let closed = false;
    let socket: WebSocket;
    const heartbeat = new Heartbeat();
    const checks = window.setInterval(() => heartbeat.check(socket), CHECK_SECONDS * 1000);
    const show = (state: string) => {
      planned ||= requestAnimationFrame(() => {
        planned = 0;
        setTail(before => ({ turn: before.turn + 1, state }));
      });
    };
    const open = () => {
      let ended = false;
      let problem = '';
      heartbeat.reset();
      socket = context.api.socket(`tasks/${id}/log?ranks=${rank}&cursor=${encodeURIComponent(cursor)}`);
      socket.onmessage = event => {
        heartbeat.reset();
        const frame = JSON.parse(event.data);
        if (frame.error) {
          problem = frame.error.message;
          return;
        }
        wait = FIRST_WAIT_SECONDS;
        ended = frame.end ?? false;
        cursor = frame.cursor || cursor;
        lines.add(frame.lines as LogRow[]);
        show(ended ? 'complete' : 'live');
      };
      socket.onclose = () => {
        if (closed || ended) {
          return;
        }
        show(problem || 'Connecting …');
        timer = window.setTimeout(open, wait * 1000);
        wait = Math.min(10, wait * 2);
      };
    };
    open();
    return () => {
      closed = true;
      socket.close();
      window.clearTimeout(timer);
      window.clearInterval(checks);
      cancelAnimationFrame(planned);
    };
  }, [context, id, rank, lines]);
  return { lines, ...tail };
}

interface ViewProps {
  tail: Tail;
  wrap: boolean;
  times: boolean;
  many: boolean;
  jump: number;
  context: Context;
}

/** Follows the end until the user scrolls up, and again after they scroll back to the end. */
function View(props: ViewProps): JSX.Element {
  const { tail, wrap, times, many, jump, context } = props;
  const box = React.useRef<HTMLDivElement>(null);
  const [top, setTop] = React.useState(0);
  const follows = React.useRef(true);
  const height = useHeight(box);
  const all = tail.lines.all;
  React.useLayoutEffect(() => {
    if (box.current && follows.current) {
      box.current.scrollTop = box.current.scrollHeight;
    }
  }, [tail.turn, wrap, height]);
  React.useEffect(() => {
    if (jump >= 0 && box.current) {
      follows.current = false;
      box.current.scrollTop = Math.max(0, jump * ROW_HEIGHT - height / 2);
    }
  }, [jump]);
  const { first, end } = wrap ? { first: Math.max(0, all.length - 5000), end: all.length } : visibleRows(top, height, ROW_HEIGHT, all.length, 30);
  const style = wrap ? {} : { height: all.length * ROW_HEIGHT, position: 'relative' as const };
  return (
    <div
      ref={box}
      className={`hai-log ${wrap ? 'hai-wrap' : ''}`}
      tabIndex={0}
      role="log"
      aria-label={context.translate('Log')}
      onScroll={event => {
        const { scrollTop, clientHeight, scrollHeight } = event.currentTarget;
        follows.current = scrollTop + clientHeight >= scrollHeight - ROW_HEIGHT;
        setTop(scrollTop);
      }}
    >
      <div style={style}>
        {all.slice(first, end).map((line, i) => (
          <OneLine
            key={line.key}
            line={line}
            times={times}
            many={many}
            marked={first + i === jump}
            style={wrap ? {} : { position: 'absolute', top: (first + i) * ROW_HEIGHT, height: ROW_HEIGHT }}
            run={context.translate('run {n}', { n: line.run })}
          />
        ))}
      </div>
    </div>
  );
}

interface LineProps {
  line: Line;
  times: boolean;
  many: boolean;
  marked: boolean;
  run: string;
  style: React.CSSProperties;
}

const OneLine = React.memo(
  function OneLine(props: LineProps): JSX.Element {
    const { line, times, many } = props;
    const classes = `hai-line ${props.marked ? 'hai-marked' : ''} ${line.startsRun ? 'hai-opens' : ''}`;
    return (
      <div className={classes} style={props.style} data-run={line.startsRun ? props.run : undefined}>
        {times && <span className="hai-dim">{clock(new Date(line.time * 1000))} </span>}
        {many && <span className="hai-dim">{line.rank}│ </span>}
        {parsePieces(line.text).map((piece, i) => (
          <span key={i} className={piece.style && `hai-ansi ${piece.style}`}>
            {piece.text}
          </span>
        ))}
      </div>
    );
  },
  (a, b) =>
    a.line === b.line && a.times === b.times && a.many === b.many && a.marked === b.marked && a.style.top === b.style.top
);
