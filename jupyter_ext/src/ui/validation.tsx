/** Shows how the server validates a submission while it is edited. */
import * as React from 'react';

import { Check, Submission } from '../model/api_types';
import { Failure } from '../model/types';
import { Context } from './context';

const CHECK_AFTER_MS = 300;

/** Validates the submission on the server, shortly after each change. */
export function useCheck(context: Context, request: Submission): { value: Check | null; error: Error | null } {
  const [state, setState] = React.useState<{ value: Check | null; error: Error | null }>({ value: null, error: null });
  const key = JSON.stringify(request);
  React.useEffect(() => {
    let current = true;
    const timer = window.setTimeout(() => {
      context.api.check(request).then(
        value => current && setState({ value, error: null }),
        error => current && setState(before => ({ value: before.value, error }))
      );
    }, CHECK_AFTER_MS);
    return () => {
      current = false;
      window.clearTimeout(timer);
    };
  }, [key]);
  return state;
}

/** Says where the task would start, why it would wait, or what is wrong with it. */
export function Outcome(props: { context: Context; check: Check | null; error: Error | null; failure: Failure | null }): JSX.Element {
  const failure = props.failure ?? props.check?.error ?? (props.error as unknown as Failure | null);
  if (failure) {
    const all = failure.violations?.length ? failure.violations : null;
    return (
      <div className="hai-failed" role="alert">
        {all ? (
          <ul>
            {all.map(v => (
              <li key={v.field + v.message}>
                {v.line ? `${v.line}:${v.column} ` : ''}
                <b>{v.field}</b> {v.message}
              </li>
            ))}
          </ul>
        ) : (
          failure.message
        )}
        {failure.hint && <div className="hai-dim">{failure.hint}</div>}
      </div>
    );
  }
  return <div className="hai-outcome">{props.check ? `${props.check.message ?? ''}` : props.context.translate('Checking …')}</div>;
}
