// SPDX-License-Identifier: Apache-2.0
#include "userspace/http/server.h"

#include <microhttpd.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "userspace/doors/door.h"

namespace cw::http {
namespace {

constexpr unsigned kIdleSeconds = 10;
constexpr size_t kRequestBytes = 16 << 10;

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
  Limits limits;
  MHD_Daemon* daemon = nullptr;
  std::mutex mutex;                                          // of the next
  std::map<int, std::chrono::steady_clock::time_point> fds;  // of connections, since when it or its request is
  std::unique_ptr<doors::Door> door;                         // goes first

  // The library says so before it closes one: no number here is another connection's.
  static void Noted(void* self, MHD_Connection* connection, void**, MHD_ConnectionNotificationCode code) {
    const MHD_ConnectionInfo* info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    if (info == nullptr) return;
    auto* impl = static_cast<Impl*>(self);
    const std::lock_guard lock(impl->mutex);
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
      impl->fds[info->connect_fd] = std::chrono::steady_clock::now();
    } else {
      impl->fds.erase(info->connect_fd);
    }
  }

  // Nobody is sent away for others any more who made a whole request.
  void Known(MHD_Connection* connection) {
    const MHD_ConnectionInfo* info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    if (info == nullptr || info->client_addr == nullptr) return;
    sockaddr_storage from{};
    const bool v6 = info->client_addr->sa_family == AF_INET6, v4 = info->client_addr->sa_family == AF_INET;
    if (!v4 && !v6) return;
    std::memcpy(&from, info->client_addr, v6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in));
    door->Known(doors::PeerOf(from), "");
  }

  void Begins(MHD_Connection* connection) {
    const MHD_ConnectionInfo* info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    const std::lock_guard lock(mutex);
    if (const auto at = info == nullptr ? fds.end() : fds.find(info->connect_fd); at != fds.end())
      at->second = std::chrono::steady_clock::now();
  }

  void EndTheOld() {
    const auto now = std::chrono::steady_clock::now();
    const std::lock_guard lock(mutex);
    for (const auto& [fd, since] : fds) {
      if (absl::FromChrono(now - since) >= limits.longest) (void)shutdown(fd, SHUT_RDWR);
    }
  }

  absl::Status Open(const config::Listen& where) {
    const bool is_unix = where.kind == config::Listen::Kind::kUnix;
    absl::StatusOr<doors::Listener> listener =
        is_unix ? doors::Listener::Unix(where.path, 0660) : doors::Listener::Tcp(where);
    if (!listener.ok())
      return absl::Status(listener.status().code(), absl::StrCat(listener.status().message(), "; see metrics.listen"));
    daemon =
        MHD_start_daemon(MHD_USE_EPOLL_INTERNAL_THREAD | MHD_USE_ITC | MHD_USE_NO_LISTEN_SOCKET, 0, nullptr, nullptr,
                         &Answer, this, MHD_OPTION_CONNECTION_TIMEOUT, kIdleSeconds, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
                         kRequestBytes, MHD_OPTION_NOTIFY_CONNECTION, &Noted, this, MHD_OPTION_END);
    if (daemon == nullptr) return absl::UnavailableError("cannot start the HTTP server: out of threads or descriptors");
    doors::DoorSpec spec{.limits = {.each = is_unix ? limits.all : limits.each, .all = limits.all},
                         .newcomers = {.most = limits.all, .of_one = limits.all}};
    spec.screen = [this](int, const sockaddr_storage& from) -> std::optional<std::string> {
      EndTheOld();
      return doors::AddressOf(from);
    };
    spec.admit = [this](maps::UniqueFd fd, const sockaddr_storage& from) {
      (void)MHD_add_connection(daemon, fd.release(), reinterpret_cast<const sockaddr*>(&from), sizeof(from));
    };
    std::vector<doors::Listener> listeners;
    listeners.push_back(*std::move(listener));
    absl::StatusOr<std::unique_ptr<doors::Door>> opened = doors::Door::Open(std::move(listeners), std::move(spec));
    if (!opened.ok()) return opened.status();
    door = *std::move(opened);
    door->Start();
    return absl::OkStatus();
  }

  // The library calls once with a request's head; an answer given then refuses its body unread.
  static MHD_Result Answer(void* self, MHD_Connection* connection, const char* url, const char* method, const char*,
                           const char*, size_t*, void**) {
    const bool reads = std::strcmp(method, MHD_HTTP_METHOD_GET) == 0 || std::strcmp(method, MHD_HTTP_METHOD_HEAD) == 0;
    if (!reads) return Queue(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "GET or HEAD only\n", "text/plain");
    static_cast<Impl*>(self)->Begins(connection);
    static_cast<Impl*>(self)->Known(connection);
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

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const config::Listen& listen, std::vector<Route> routes,
                                                      const Limits& limits) {
  auto impl = std::make_unique<Impl>();
  impl->limits = limits;
  impl->routes = std::move(routes);
  std::unique_ptr<Server> server(new Server(std::move(impl)));
  if (absl::Status status = server->impl_->Open(listen); !status.ok()) return status;
  return server;
}

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Server::~Server() {
  if (impl_->door != nullptr) impl_->door->Close();
  if (impl_->daemon != nullptr) MHD_stop_daemon(impl_->daemon);
}

}  // namespace cw::http
