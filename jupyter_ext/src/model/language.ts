/** English is what stands in the code; other languages are tables from it. */
import { fill } from './news';

export type Say = (text: string, values?: Record<string, string | number>) => string;

/** A function that says a text in the language of a table. */
export function speaker(table: Record<string, string>): Say {
  return (text, values) => fill(table[text] ?? text, values ?? {});
}

/** True for zh, zh_CN, zh-TW … */
export function isChinese(language: string): boolean {
  return language.toLowerCase().startsWith('zh');
}
