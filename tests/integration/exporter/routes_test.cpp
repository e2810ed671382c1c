// What the exporter of a process answers, over a real socket.
#include <chrono>
#include <csignal>
#include <cstdint>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <dirent.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <nlohmann/json.hpp>

#include <headroom/exporter.hpp>
#include <headroom/host_resource.hpp>
#include <headroom/manager.hpp>

#include "exporters.hpp"
#include "http_client.hpp"
#include "service.hpp"

namespace headroom {
namespace {

using test::ask;
using test::get;
using testing::HasSubstr;
using testing::StartsWith;

class Routes : public testing::Test {
protected:
  Exporter exporter_ = test::start_anywhere();
  std::uint16_t port_ = exporter_.port();
};

std::string gunzip(std::string const& packed) {
  std::string text(std::size_t{16} << 20U, '\0');
  z_stream stream{};
  inflateInit2(&stream, 15 + 16);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
  stream.avail_in = static_cast<uInt>(packed.size());
  stream.next_out = reinterpret_cast<Bytef*>(text.data());
  stream.avail_out = static_cast<uInt>(text.size());
  const int result = inflate(&stream, Z_FINISH);
  text.resize(stream.total_out);
  inflateEnd(&stream);
  return result == Z_STREAM_END ? text : std::string{};
}

TEST_F(Routes, says_where_it_serves) {
  EXPECT_EQ(exporter_.state(), flight::ExporterState::serving);
  EXPECT_EQ(exporter_.reason(), "");
  EXPECT_NE(port_, 0);
  EXPECT_EQ(exporter_.address(), "127.0.0.1:" + std::to_string(port_));
  EXPECT_EQ(exporter_.url(), "http://127.0.0.1:" + std::to_string(port_));
}

TEST_F(Routes, metrics_have_the_content_type_that_prometheus_wants) {
  const auto response = get(port_, "/metrics");
  EXPECT_EQ(response.status, 200);
  EXPECT_TRUE(response.has("Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"));
  EXPECT_THAT(response.body, HasSubstr("headroom_exporter_errors_total{"));
  EXPECT_THAT(response.body, HasSubstr("headroom_exporter_scrape_duration_seconds_count{"));
  EXPECT_THAT(response.body, HasSubstr("headroom_build_info{"));
}

TEST_F(Routes, metrics_do_not_mind_any_accept_header_or_query) {
  for (const char* accept :
       {"", "Accept: */*\r\n", "Accept: text/plain;version=0.0.4;q=0.5,*/*;q=0.1\r\n", "Accept: application/json\r\n",
        "Accept: ;;;q=x,\"\r\n", "Accept: text/plain\r\nAccept: application/openmetrics-text;q=0.1\r\n"}) {
    const auto response = get(port_, "/metrics?x=1", accept);
    EXPECT_EQ(response.status, 200) << accept;
    EXPECT_TRUE(response.has("version=0.0.4")) << accept;
    EXPECT_TRUE(response.has("Vary: Accept, Accept-Encoding\r\n")) << accept;
  }
}

TEST_F(Routes, metrics_are_open_metrics_for_whoever_names_it) {
  for (const char* accept :
       {"Accept: application/openmetrics-text\r\n",
        "Accept: application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,text/plain;version=0.0.4;q=0.4\r\n",
        "Accept: text/plain;q=0.1\r\nAccept: application/openmetrics-text; version=\"1.0.0\"\r\n"}) {
    const auto response = get(port_, "/metrics", accept);
    EXPECT_EQ(response.status, 200) << accept;
    EXPECT_TRUE(response.has("Content-Type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n")) << accept;
    EXPECT_TRUE(response.has("Vary: Accept, Accept-Encoding\r\n")) << accept;
    EXPECT_TRUE(response.body.ends_with("\n# EOF\n")) << accept;
    const auto packed = get(port_, "/metrics", std::string{accept} + "Accept-Encoding: gzip\r\n");
    EXPECT_TRUE(packed.has("Content-Encoding: gzip\r\n")) << accept;
    EXPECT_TRUE(gunzip(packed.body).ends_with("\n# EOF\n")) << accept;
  }
}

TEST_F(Routes, healthy_and_the_page_for_people) {
  EXPECT_EQ(get(port_, "/-/healthy").status, 200);
  const auto page = get(port_, "/");
  EXPECT_EQ(page.status, 200);
  EXPECT_THAT(page.body, StartsWith("headroom "));
  EXPECT_TRUE(page.has("Content-Type: text/plain; charset=utf-8\r\n"));
  for (const char* route : {"/metrics", "/-/healthy", "/api/state.json", "/snapshot.json"}) {
    EXPECT_THAT(page.body, HasSubstr(std::string{"  "} + route + " ")) << route;
  }
  EXPECT_THAT(get(port_, "/", "Accept: */*\r\n").body, StartsWith("headroom "));  // curl
}

TEST_F(Routes, a_browser_gets_the_page_and_a_policy_that_allows_nothing_else) {
  const auto page = get(port_, "/", "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\n");
  EXPECT_EQ(page.status, 200);
  EXPECT_TRUE(page.has("Content-Type: text/html; charset=utf-8\r\n"));
  EXPECT_TRUE(page.has("Vary: Accept, Accept-Encoding\r\n"));
  EXPECT_THAT(page.body, StartsWith("<!doctype html>"));
  EXPECT_TRUE(page.body.ends_with("</html>\n"));
  const auto policy = page.head.substr(page.head.find("Content-Security-Policy: "));
  EXPECT_THAT(policy, StartsWith("Content-Security-Policy: default-src 'none'; script-src 'nonce-"));
  const auto begin = policy.find("nonce-") + 6;
  const auto nonce = policy.substr(begin, policy.find('\'', begin) - begin);
  EXPECT_EQ(nonce.size(), 32U);
  EXPECT_THAT(page.body, HasSubstr("<script nonce=\"" + nonce + "\">"));
  EXPECT_THAT(page.body, HasSubstr("<style nonce=\"" + nonce + "\">"));
}

TEST_F(Routes, the_state_is_json_about_this_process) {
  const auto response = get(port_, "/api/state.json");
  EXPECT_EQ(response.status, 200);
  EXPECT_TRUE(response.has("Content-Type: application/json\r\n"));
  const auto state = nlohmann::json::parse(response.body);
  EXPECT_EQ(state["schema"]["name"], "headroom-state");
  EXPECT_EQ(state["serves"], "process");
  ASSERT_EQ(state["processes"].size(), 1U);
  EXPECT_EQ(state["processes"][0]["pid"], getpid());
  EXPECT_EQ(state["processes"][0]["state"], "living");
  EXPECT_TRUE(state["processes"][0].contains("managers"));
  EXPECT_FALSE(nlohmann::json::parse(get(port_, "/api/state.json?detail=").body)["processes"][0].contains("managers"));
  EXPECT_TRUE(nlohmann::json::parse(get(port_, "/api/state.json?detail=auto").body)["processes"][0].contains("managers"));
  const std::string id = state["processes"][0]["id"];
  EXPECT_TRUE(nlohmann::json::parse(get(port_, "/api/state.json?detail=x%2C" + id).body)["processes"][0].contains("managers"));
}

TEST_F(Routes, the_snapshot_is_a_post_mortem_of_now) {
  auto manager = GpuMemoryManager::create(host_device().value(), MemoryBudget::with_limit(1000), "snapshot").value();
  const auto kept = manager.alloc<char>(321, AllocTag{"kept"}).value();
  const auto response = get(port_, "/snapshot.json");
  ASSERT_EQ(response.status, 200);
  EXPECT_TRUE(response.has("Content-Type: application/json\r\n"));
  EXPECT_TRUE(response.has("Content-Length: " + std::to_string(response.body.size()) + "\r\n"));
  const auto whole = nlohmann::json::parse(response.body);
  EXPECT_EQ(whole["schema"]["name"], "headroom-post-mortem");
  EXPECT_THAT(response.body, HasSubstr("\"snapshot\""));
  // In chunks, since its packed length is not known when it begins; old clients get it as it is.
  const auto packed = get(port_, "/snapshot.json", "Accept-Encoding: gzip\r\n");
  EXPECT_TRUE(packed.has("Transfer-Encoding: chunked\r\n"));
  EXPECT_TRUE(packed.has("Content-Encoding: gzip\r\n"));
  EXPECT_EQ(nlohmann::json::parse(gunzip(test::without_chunks(packed.body)))["schema"]["name"], "headroom-post-mortem");
  const auto old = ask(port_, "GET /snapshot.json HTTP/1.0\r\nAccept-Encoding: gzip\r\n\r\n");
  EXPECT_FALSE(old.has("Content-Encoding"));
  EXPECT_EQ(nlohmann::json::parse(old.body)["schema"]["name"], "headroom-post-mortem");
  // Without its events it is shorter.
  const auto state = get(port_, "/snapshot.json?events=0");
  EXPECT_LT(state.body.size(), response.body.size());
  EXPECT_EQ(nlohmann::json::parse(state.body)["schema"]["name"], "headroom-post-mortem");
}

TEST_F(Routes, a_snapshot_does_not_end_the_connection) {
  const test::Client client{port_};
  ASSERT_TRUE(
      client.say("GET /snapshot.json HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: gzip\r\n\r\n"
                 "GET /-/healthy HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"));
  EXPECT_TRUE(client.read_all().ends_with("\r\n\r\nok\n"));
}

TEST_F(Routes, two_snapshots_may_be_on_their_way_at_a_time) {
  exporter::Service service{[]() -> Result<std::vector<GpuDevice>> { return std::vector<GpuDevice>{}; }};
  auto first = service.snapshot();
  auto second = service.snapshot();
  EXPECT_EQ(first.status, 200);
  EXPECT_EQ(second.status, 200);
  const auto third = service.snapshot();
  EXPECT_EQ(third.status, 503);
  EXPECT_THAT(third.headers, testing::Contains(std::pair<std::string, std::string>{"Retry-After", "5"}));
  EXPECT_EQ(third.document, nullptr);
  first.document.reset();
  EXPECT_EQ(service.snapshot().status, 200);
}

TEST_F(Routes, head_is_get_without_the_body) {
  const auto response = get(port_, "/-/healthy", "", false, "HEAD");
  EXPECT_EQ(response.status, 200);
  EXPECT_TRUE(response.has("Content-Length: 3\r\n"));
  EXPECT_EQ(response.body, "");
  EXPECT_EQ(get(port_, "/metrics", "", false, "HEAD").status, 200);
  EXPECT_EQ(get(port_, "/metrics", "Accept-Encoding: gzip\r\n", false, "HEAD").body, "");
  EXPECT_EQ(get(port_, "/nothing", "", false, "HEAD").status, 404);
  for (const char* path : {"/", "/metrics", "/api/state.json", "/snapshot.json", "/-/healthy"}) {
    for (const char* headers : {"", "Accept: text/html, application/openmetrics-text\r\nAccept-Encoding: gzip\r\n"}) {
      const auto head = get(port_, path, headers, false, "HEAD");
      EXPECT_EQ(head.status, 200) << path;
      EXPECT_EQ(head.body, "") << path;
      EXPECT_EQ(head.has("Content-Encoding: gzip"), get(port_, path, headers).has("Content-Encoding: gzip")) << path;
    }
  }
}

TEST_F(Routes, gzip_is_given_to_who_asks_for_it) {
  const auto plain = get(port_, "/metrics");
  EXPECT_FALSE(plain.has("Content-Encoding"));
  for (const char* header :
       {"Accept-Encoding: gzip\r\n", "Accept-Encoding: gzip, deflate, br\r\n", "accept-encoding: br;q=1, gzip;q=0.5\r\n"}) {
    const auto packed = get(port_, "/metrics", header);
    EXPECT_TRUE(packed.has("Content-Encoding: gzip\r\n")) << header;
    EXPECT_LT(packed.body.size(), plain.body.size());
    EXPECT_THAT(gunzip(packed.body), HasSubstr("headroom_exporter_errors_total{")) << header;
  }
  for (const char* header : {"Accept-Encoding: br\r\n", "Accept-Encoding: gzip;q=0\r\n", "Accept-Encoding: identity\r\n"}) {
    EXPECT_FALSE(get(port_, "/metrics", header).has("Content-Encoding")) << header;
  }
}

TEST_F(Routes, unknown_paths_are_404_and_other_methods_405) {
  EXPECT_EQ(get(port_, "/metrics/more").status, 404);
  EXPECT_EQ(get(port_, "/../etc/passwd").status, 404);
  for (const char* path : {"/%00", "/api", "/api/", "/api/state.json/", "/snapshot", "/favicon.ico", "/status.html"}) {
    EXPECT_EQ(get(port_, path).status, 404) << path;
  }
  for (const char* path : {"/", "/metrics", "/api/state.json", "/snapshot.json", "/-/healthy"}) {
    for (const char* method : {"POST", "PUT", "DELETE", "PATCH", "OPTIONS"}) {
      const auto response = get(port_, path, "", false, method);
      EXPECT_EQ(response.status, 405) << method << path;
      EXPECT_TRUE(response.has("Allow: GET, HEAD\r\n")) << method << path;
    }
  }
}

int status_for_host(std::uint16_t port, std::string const& path, std::string const& host) {
  return ask(port, "GET " + path + " HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n\r\n").status;
}

TEST_F(Routes, a_name_that_somebody_else_may_own_is_refused_on_loopback) {
  auto manager = GpuMemoryManager::create(host_device().value(), MemoryBudget::unlimited(), "pool").value();
  const auto port = std::to_string(port_);
  for (const std::string path : {"/", "/metrics", "/api/state.json", "/snapshot.json", "/-/healthy", "/nothing"}) {
    const int good = path == "/nothing" ? 404 : 200;
    for (std::string const& host : {std::string{"evil.example"}, "evil.example:" + port, std::string{"localhost.evil.example"}}) {
      EXPECT_EQ(status_for_host(port_, path, host), 403) << path << host;
    }
    for (std::string const& host : {"localhost:" + port, "127.0.0.1:" + port, "[::1]:" + port, std::string{"gpu.localhost"}}) {
      EXPECT_EQ(status_for_host(port_, path, host), good) << path << host;
    }
    EXPECT_EQ(ask(port_, "GET " + path + " HTTP/1.0\r\n\r\n").status, good) << path;
  }
  const auto refused = ask(port_, "GET / HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(refused.body, HasSubstr("403: 'evil.example' is not a name by which this exporter answers."));
  EXPECT_EQ(status_for_host(port_, "/", "localhost\r\nHost: evil.example"), 403);
}

TEST(RoutesOnAllAddresses, are_asked_by_any_name) {
  const auto exporter = Exporter::start({.listen = ":0", .policy = BindPolicy::fail}).value();
  EXPECT_EQ(status_for_host(exporter.port(), "/metrics", "node-7.example:9478"), 200);
}

TEST_F(Routes, a_body_is_not_taken_for_the_next_request) {
  const std::string body = "GET /metrics HTTP/1.1\r\n\r\n";
  const auto response = ask(
      port_, "POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
  EXPECT_EQ(response.status, 405);
  EXPECT_TRUE(response.has("Connection: close\r\n"));
  EXPECT_THAT(response.body, testing::Not(HasSubstr("HTTP/1.1 200")));
}

TEST_F(Routes, one_connection_takes_several_requests_also_at_once) {
  const std::string request = "GET /-/healthy HTTP/1.1\r\nHost: localhost\r\n\r\n";
  const test::Client client{port_};
  ASSERT_TRUE(client.say(request + request));
  constexpr std::string_view kBody = "\r\n\r\nok\n";
  const auto two = client.read_until([&](std::string const& bytes) {
    const auto first = bytes.find(kBody);
    return first != std::string::npos && bytes.find(kBody, first + 1) != std::string::npos;
  });
  EXPECT_EQ(std::string_view{two}.find("200 OK"), 9U);
  EXPECT_NE(two.find("200 OK", 20), std::string::npos);
  ASSERT_TRUE(client.say("GET /-/healthy HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"));
  EXPECT_THAT(client.read_all(), HasSubstr("200 OK"));
}

TEST_F(Routes, one_connection_takes_a_hundred_requests_and_no_more) {
  const test::Client client{port_};
  std::string requests;
  for (int count = 0; count < 150; ++count) requests += "GET /-/healthy HTTP/1.1\r\nHost: localhost\r\n\r\n";
  ASSERT_TRUE(client.say(requests));
  const auto text = client.read_all();
  std::size_t answers = 0;
  for (auto found = text.find("HTTP/1.1 200"); found != std::string::npos; found = text.find("HTTP/1.1 200", found + 1))
    ++answers;
  EXPECT_EQ(answers, 100U);
}

TEST_F(Routes, old_clients_are_served_too) {
  const auto response = ask(port_, "GET /metrics HTTP/1.0\r\n\r\n");
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(ask(port_, "GET /-/healthy HTTP/1.1\nHost: localhost\nConnection: close\n\n").status,
            400);  // bare newlines are refused, at once
}

TEST_F(Routes, sigpipe_stays_as_the_program_set_it) {
  struct sigaction action{};
  ASSERT_EQ(sigaction(SIGPIPE, nullptr, &action), 0);
  EXPECT_EQ(action.sa_handler, SIG_DFL);
}

/// The signals that a thread of this process blocks, as bits; nothing where it has ended. The system's library blocks all of them for an
/// instant while a thread begins and while it ends: a mask with a fault in it is looked at again, for a while.
std::optional<std::uint64_t> blocked_by(const std::string& task) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds{5};
  for (;;) {
    std::stringstream status;
    status << std::ifstream{task + "/status"}.rdbuf();
    const auto text = status.str();
    const auto found = text.find("SigBlk:");
    if (found == std::string::npos) return {};
    const std::uint64_t blocked = std::stoull(text.substr(found + 7), nullptr, 16);
    if (((blocked >> (SIGSEGV - 1)) & 1U) == 0 || std::chrono::steady_clock::now() >= end) return blocked;
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  }
}

TEST_F(Routes, its_threads_block_the_signals_of_the_program) {
  ASSERT_EQ(get(port_, "/-/healthy").status, 200);  // its thread has begun, and has its name
  int found = 0;
  DIR* const tasks = opendir("/proc/self/task");
  while (const dirent* const task = readdir(tasks)) {
    const std::string folder = std::string{"/proc/self/task/"} + task->d_name;
    std::string name;
    std::getline(std::ifstream{folder + "/comm"} >> std::ws, name);
    if (!name.starts_with("headroom-")) continue;
    const auto blocked = blocked_by(folder);
    if (!blocked) continue;  // a client's thread that ended meanwhile
    ++found;
    for (const int signal : {SIGTERM, SIGINT, SIGPIPE, SIGCHLD, SIGUSR1, SIGALRM}) {
      EXPECT_TRUE((*blocked >> (signal - 1)) & 1U) << signal;
    }
    EXPECT_FALSE((*blocked >> (SIGSEGV - 1)) & 1U);
  }
  closedir(tasks);
  EXPECT_GE(found, 1);
}

}  // namespace
}  // namespace headroom
