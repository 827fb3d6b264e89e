/* SPDX-License-Identifier: Apache-2.0 */
/* Is a descriptor still the socket that a library opened? Applications close what they do not know (closefrom, daemons)
 * and get the number again for something of their own. The kernel gives no two sockets the same cookie while it runs.
 */
#ifndef CW_INPROC_OWN_SOCKET_H
#define CW_INPROC_OWN_SOCKET_H
#include <errno.h>
#include <stdint.h>
#include <sys/socket.h>

#ifndef SO_COOKIE
#define SO_COOKIE 57
#endif

/* 0: no socket. errno stays. */
static inline uint64_t cw_socket_cookie(int fd) {
  const int before = errno;
  uint64_t cookie = 0;
  socklen_t size = sizeof(cookie);
  if (getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &size) != 0) cookie = 0;
  errno = before;
  return cookie;
}

#endif
