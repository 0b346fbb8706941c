/** Shows how a file differs from its last submission. */
import * as React from 'react';

import { Context } from './context';
import { Empty } from './common';

const KINDS: Record<string, string> = { '+': 'hai-added', '-': 'hai-removed', '@': 'hai-dim' };

/** A unified diff, line by line. */
export function Changes(props: { context: Context; text: string }): JSX.Element {
  if (!props.text) {
    return <Empty>{props.context.translate('It is as it was submitted last.')}</Empty>;
  }
  return (
    <pre className="hai-text hai-diff">
      {props.text.split('\n').map((line, i) => (
        <div key={i} className={KINDS[line.charAt(0)] ?? ''}>
          {line || ' '}
        </div>
      ))}
    </pre>
  );
}
