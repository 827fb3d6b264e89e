// SPDX-License-Identifier: Apache-2.0
#include "userspace/http/server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <microhttpd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace cw::http {
namespace {

constexpr unsigned kMaxConnections = 16;
constexpr unsigned kIdleSeconds = 10;
constexpr size_t kRequestBytes = 16 << 10;
constexpr int kBacklog = 16;

sockaddr_un UnixAddress(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), std::min(path.size(), sizeof(address.sun_path) - 1));
  return address;
}

bool SomebodyListens(const std::string& path) {
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_un address = UnixAddress(path);
  const bool connected = fd >= 0 && connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  if (fd >= 0) close(fd);
  return connected;
}

absl::Status CannotListen(const std::string& where, int error) {
  return absl::UnavailableError(absl::StrFormat("cannot serve on %s: %s; see metrics.listen", where, strerror(error)));
}

// Bound under a name of its own, then renamed: nobody can open it before its mode is right.
absl::StatusOr<int> ListenUnix(const std::string& path) {
  if (SomebodyListens(path))
    return absl::AlreadyExistsError(absl::StrCat(path, " is served by another process; see metrics.listen"));
  const std::string bind_path = absl::StrCat(path, ".", getpid());
  unlink(bind_path.c_str());
  const sockaddr_un address = UnixAddress(bind_path);
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd >= 0 && bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 &&
      chmod(bind_path.c_str(), 0660) == 0 && listen(fd, kBacklog) == 0 && rename(bind_path.c_str(), path.c_str()) == 0)
    return fd;
  const int error = errno;
  unlink(bind_path.c_str());
  if (fd >= 0) close(fd);
  return CannotListen(path, error);
}

absl::StatusOr<int> ListenTcp(const config::Listen& where) {
  sockaddr_in v4{.sin_family = AF_INET, .sin_port = htons(where.port)};
  sockaddr_in6 v6{.sin6_family = AF_INET6, .sin6_port = htons(where.port)};
  const bool is_v4 = inet_pton(AF_INET, where.address.c_str(), &v4.sin_addr) == 1;
  if (!is_v4) inet_pton(AF_INET6, where.address.c_str(), &v6.sin6_addr);
  const int fd = socket(is_v4 ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const int on = 1;
  if (fd >= 0) {
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (!is_v4) (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
  }
  const auto* address = is_v4 ? reinterpret_cast<const sockaddr*>(&v4) : reinterpret_cast<const sockaddr*>(&v6);
  if (fd >= 0 && bind(fd, address, is_v4 ? sizeof(v4) : sizeof(v6)) == 0 && listen(fd, kBacklog) == 0) return fd;
  const int error = errno;
  if (fd >= 0) close(fd);
  return CannotListen(absl::StrCat(where.address, ":", where.port), error);
}

MHD_Result Queue(MHD_Connection* connection, unsigned code, const std::string& text, const char* type) {
  MHD_Response* response =
      MHD_create_response_from_buffer(text.size(), const_cast<char*>(text.data()), MHD_RESPMEM_MUST_COPY);
  if (response == nullptr) return MHD_NO;
  MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
  if (code == MHD_HTTP_METHOD_NOT_ALLOWED) MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
  const MHD_Result result = MHD_queue_response(connection, code, response);
  MHD_destroy_response(response);
  return result;
}

// "GET /metrics and /sd".
std::string NotHere(const std::vector<Route>& routes) {
  const auto path = [](std::string* out, const Route& route) { out->append(route.path); };
  return absl::StrCat("not here; what is: ", absl::StrJoin(routes, ", ", path), "\n");
}

}  // namespace

struct Server::Impl {
  std::vector<Route> routes;
  std::string unix_path;
  ino_t inode = 0;  // of our socket: another's is never removed
  MHD_Daemon* daemon = nullptr;

  // The library calls once with a request's head; an answer given then refuses its body unread.
  static MHD_Result Answer(void* self, MHD_Connection* connection, const char* url, const char* method, const char*,
                           const char*, size_t*, void**) {
    const bool reads = std::strcmp(method, MHD_HTTP_METHOD_GET) == 0 || std::strcmp(method, MHD_HTTP_METHOD_HEAD) == 0;
    if (!reads) return Queue(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "GET or HEAD only\n", "text/plain");
    const std::vector<Route>& routes = static_cast<Impl*>(self)->routes;
    const auto route = std::find_if(routes.begin(), routes.end(), [&](const Route& each) { return each.path == url; });
    if (route == routes.end()) return Queue(connection, MHD_HTTP_NOT_FOUND, NotHere(routes), "text/plain");
    const absl::StatusOr<std::string> body = route->page();
    if (!body.ok())
      return Queue(connection, MHD_HTTP_SERVICE_UNAVAILABLE, absl::StrCat(std::string(body.status().message()), "\n"),
                   "text/plain");
    return Queue(connection, MHD_HTTP_OK, *body, route->type.c_str());
  }
};

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const config::Listen& listen, std::vector<Route> routes) {
  const bool is_unix = listen.kind == config::Listen::Kind::kUnix;
  absl::StatusOr<int> fd = is_unix ? ListenUnix(listen.path) : ListenTcp(listen);
  if (!fd.ok()) return fd.status();
  auto impl = std::make_unique<Impl>();
  impl->routes = std::move(routes);
  struct stat info {};
  if (is_unix && stat(listen.path.c_str(), &info) == 0) {
    impl->unix_path = listen.path;
    impl->inode = info.st_ino;
  }
  impl->daemon = MHD_start_daemon(MHD_USE_EPOLL_INTERNAL_THREAD | MHD_USE_ITC, 0, nullptr, nullptr, &Impl::Answer,
                                  impl.get(), MHD_OPTION_LISTEN_SOCKET, *fd, MHD_OPTION_CONNECTION_LIMIT,
                                  kMaxConnections, MHD_OPTION_CONNECTION_TIMEOUT, kIdleSeconds,
                                  MHD_OPTION_CONNECTION_MEMORY_LIMIT, kRequestBytes, MHD_OPTION_END);
  std::unique_ptr<Server> server(new Server(std::move(impl)));
  if (server->impl_->daemon != nullptr) return server;
  close(*fd);
  return absl::UnavailableError("cannot start the HTTP server: out of threads or descriptors");
}

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Server::~Server() {
  struct stat info {};
  if (!impl_->unix_path.empty() && stat(impl_->unix_path.c_str(), &info) == 0 && info.st_ino == impl_->inode)
    unlink(impl_->unix_path.c_str());
  if (impl_->daemon != nullptr) MHD_stop_daemon(impl_->daemon);  // closes the socket
}

}  // namespace cw::http
