// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/alerts/http_post.h"

#include <curl/curl.h>

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "userspace/model/utf8.h"

namespace cw::fleet {
namespace {

constexpr long kConnectMs = 2000, kAllMs = 5000;
constexpr size_t kMostUrlBytes = 2048, kMostAnswerBytes = 512;

size_t TakeAnswer(char* data, size_t size, size_t count, void* text) {
  auto& answer = *static_cast<std::string*>(text);
  answer.append(data, std::min(size * count, kMostAnswerBytes - std::min(kMostAnswerBytes, answer.size())));
  return size * count;  // the rest is read and forgotten
}

int LookForStop(void* stop, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  return static_cast<const std::atomic<bool>*>(stop)->load() ? 1 : 0;
}

// Of a receiver: it may be any bytes, and is told in messages.
std::string OneLine(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < ' ') c = ' ';
  }
  return CutUtf8(text, kMostAnswerBytes);
}

struct PartOfUrl {
  explicit PartOfUrl(CURLU* url, CURLUPart part) { curl_url_get(url, part, &text, 0); }
  ~PartOfUrl() { curl_free(text); }
  char* text = nullptr;
};

}  // namespace

struct HttpPost::Impl {
  CURL* curl = nullptr;
  curl_slist* headers = nullptr;
  std::string answer;
  char error[CURL_ERROR_SIZE] = {};
};

HttpPost::HttpPost(std::string url, const std::atomic<bool>& stop) : impl_(std::make_unique<Impl>()) {
  static const CURLcode global = curl_global_init(CURL_GLOBAL_DEFAULT);
  if (global != CURLE_OK || (impl_->curl = curl_easy_init()) == nullptr) return;
  CURL* curl = impl_->curl;
  impl_->headers = curl_slist_append(nullptr, "Content-Type: application/json");
  impl_->headers = curl_slist_append(impl_->headers, "Expect:");
  curl_easy_setopt(curl, CURLOPT_URL, url.c_str());
#if LIBCURL_VERSION_NUM >= 0x075500
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
#else
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS, static_cast<long>(CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
  curl_easy_setopt(curl, CURLOPT_HTTPHEADER, impl_->headers);
  curl_easy_setopt(curl, CURLOPT_USERAGENT, "cwfleetd");
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, kConnectMs);
  curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, kAllMs);
  curl_easy_setopt(curl, CURLOPT_PROXY, "");  // the environment of a service names none
  curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, impl_->error);
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, &TakeAnswer);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, &impl_->answer);
  curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
  curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, &LookForStop);
  curl_easy_setopt(curl, CURLOPT_XFERINFODATA, const_cast<std::atomic<bool>*>(&stop));
}

HttpPost::~HttpPost() {
  curl_slist_free_all(impl_->headers);
  curl_easy_cleanup(impl_->curl);
}

absl::Status HttpPost::Send(const std::string& body) {
  if (impl_->curl == nullptr) return absl::UnavailableError("libcurl cannot be set up; is there memory left?");
  impl_->answer.clear();
  impl_->error[0] = 0;
  curl_easy_setopt(impl_->curl, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(body.size()));
  curl_easy_setopt(impl_->curl, CURLOPT_POSTFIELDS, body.data());
  const CURLcode code = curl_easy_perform(impl_->curl);
  if (code != CURLE_OK) return absl::UnavailableError(impl_->error[0] != 0 ? impl_->error : curl_easy_strerror(code));
  long status = 0;
  curl_easy_getinfo(impl_->curl, CURLINFO_RESPONSE_CODE, &status);
  if (status >= 200 && status < 300) return absl::OkStatus();
  const std::string why = absl::StrFormat("it answers %d %s", status, OneLine(impl_->answer));
  if (status == 401 || status == 403 || status == 404) return absl::PermissionDeniedError(why);
  const bool never = status >= 400 && status < 500 && status != 408 && status != 429;
  return never ? absl::InvalidArgumentError(why) : absl::UnavailableError(why);
}

absl::Status CheckUrl(const std::string& url) {
  const bool web = absl::StartsWith(url, "http://") || absl::StartsWith(url, "https://");
  CURLU* parts = curl_url();
  const bool parsed = web && url.size() <= kMostUrlBytes && curl_url_set(parts, CURLUPART_URL, url.c_str(), 0) == 0;
  curl_url_cleanup(parts);
  if (parsed) return absl::OkStatus();
  return absl::InvalidArgumentError("must be a URL that begins with http:// or https://");
}

std::string UrlForLog(const std::string& url) {
  CURLU* parts = curl_url();
  std::string out = "?";
  if (curl_url_set(parts, CURLUPART_URL, url.c_str(), 0) == 0) {
    const PartOfUrl scheme(parts, CURLUPART_SCHEME), host(parts, CURLUPART_HOST), port(parts, CURLUPART_PORT),
        path(parts, CURLUPART_PATH);
    const auto text = [](const PartOfUrl& part) { return part.text == nullptr ? "" : part.text; };
    out = absl::StrCat(text(scheme), "://", text(host), port.text == nullptr ? "" : ":", text(port),
                       std::string(text(path)) == "/" ? "" : text(path));
  }
  curl_url_cleanup(parts);
  return out;
}

}  // namespace cw::fleet
