/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that glibc 2.34 moved into libc.so.6 under a new version: bind to the old one, which every glibc since 2.17
 * has, so that what is built on a new distribution loads on an old one. */
#ifndef CWVERBS_OLD_GLIBC_H
#define CWVERBS_OLD_GLIBC_H
#if defined(__GLIBC__) && defined(__x86_64__)
#define CWV_OLD_SYMBOL(name) __asm__(".symver " #name "," #name "@GLIBC_2.2.5")
#elif defined(__GLIBC__) && defined(__aarch64__)
#define CWV_OLD_SYMBOL(name) __asm__(".symver " #name "," #name "@GLIBC_2.17")
#else
#define CWV_OLD_SYMBOL(name) struct cwv_nothing
#endif
#endif
