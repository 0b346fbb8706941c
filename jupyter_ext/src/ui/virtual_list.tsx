/** A list that draws only visible rows, so that 10 000 rows cost as much as twenty. */
import * as React from 'react';

import { scrollPositionFor, visibleRows } from '../model/visible_rows';

export interface ListProps {
  count: number;
  rowHeight: number;
  label: string;
  /** Draws a row; `style` holds its position. */
  row: (index: number, chosen: boolean, style: React.CSSProperties) => JSX.Element;
  onOpen?: (index: number) => void;
  /** Returns true if it has handled the key. */
  onKey?: (index: number, key: string) => boolean;
  chosen: number;
  /** The id of the chosen row's element, for screen readers. */
  active?: string;
  onChoose: (index: number) => void;
  className?: string;
}

/** Arrow keys, page keys, Home and End move the selection; Enter opens the row. */
export function List(props: ListProps): JSX.Element {
  const { count, rowHeight, chosen } = props;
  const box = React.useRef<HTMLDivElement>(null);
  const [top, setTop] = React.useState(0);
  const height = useHeight(box);
  const { first, end } = visibleRows(top, height, rowHeight, count);
  const rows = [];
  for (let i = first; i < end; i += 1) {
    const style: React.CSSProperties = { position: 'absolute', top: i * rowHeight, height: rowHeight, left: 0, right: 0 };
    rows.push(props.row(i, i === chosen, style));
  }
  const choose = (index: number) => {
    const next = Math.max(0, Math.min(count - 1, index));
    props.onChoose(next);
    if (box.current) {
      box.current.scrollTop = scrollPositionFor(next, box.current.scrollTop, height, rowHeight);
    }
  };
  const page = Math.max(1, Math.floor(height / rowHeight) - 1);
  const steps: Record<string, number> = {
    ArrowDown: chosen + 1,
    ArrowUp: chosen - 1,
    PageDown: chosen + page,
    PageUp: chosen - page,
    Home: 0,
    End: count - 1
  };
  const onKeyDown = (event: React.KeyboardEvent) => {
    const step = steps[event.key];
    if (event.target !== event.currentTarget && event.key === 'Enter') {
      return; // a button in a row
    }
    if (step !== undefined) {
      event.preventDefault();
      choose(step);
    } else if (event.key === 'Enter' && chosen >= 0 && chosen < count) {
      props.onOpen?.(chosen);
    } else {
      props.onKey?.(chosen, keyName(event)) && event.preventDefault();
    }
  };
  return (
    <div
      ref={box}
      className={`hai-list ${props.className ?? ''}`}
      role="listbox"
      aria-label={props.label}
      aria-activedescendant={props.active}
      tabIndex={0}
      onScroll={event => setTop(event.currentTarget.scrollTop)}
      onKeyDown={onKeyDown}
    >
      <div style={{ height: count * rowHeight, position: 'relative' }}>{rows}</div>
    </div>
  );
}

/** Returns a name such as x, Delete, Alt+c or Ctrl+a. */
function keyName(event: React.KeyboardEvent): string {
  const modifier = event.altKey ? 'Alt+' : event.ctrlKey || event.metaKey ? 'Ctrl+' : '';
  return modifier ? modifier + event.key.toLowerCase() : event.key;
}

/** Returns the height of an element, updated when it is resized. */
export function useHeight(box: React.RefObject<HTMLElement>): number {
  const [height, setHeight] = React.useState(400);
  React.useEffect(() => {
    if (!box.current) {
      return;
    }
    const watch = new ResizeObserver(([entry]) => entry && setHeight(entry.contentRect.height));
    watch.observe(box.current);
    return () => watch.disconnect();
  }, [box]);
  return height;
}
