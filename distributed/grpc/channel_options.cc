#include "distributed/grpc/channel_options.h"

#include <grpc/support/log.h>

#include <cstdlib>

#include "distributed/grpc/address.h"
#include "distributed/grpc/credentials/tls_credentials.h"
#include "distributed/job_token.h"

namespace weft {
namespace {

constexpr int kKeepaliveMilliseconds = 1000;
// Longer than what goes before the question on a slow link takes: parts that nobody has answered
// yet (PartSize). It is TCP_USER_TIMEOUT, too: with 2 s, two of eight runs over a link that loses
// 5 % of its packets lost a worker.
constexpr int kKeepaliveTimeoutMilliseconds = 3000;
// A coordinator has its lease, one call and an Abort on a connection; a peer has one stream.
constexpr int kMaxStreams = 16;
constexpr int kHandshakeMilliseconds = 10'000;

}  // namespace

std::shared_ptr<grpc::Channel> NewChannel(const std::string& address, const KeyRing* keys,
                                          Role serves) {
  PrepareGrpc();
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMilliseconds);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMilliseconds);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // Retries would hold on to what was sent.
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 500);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetMaxReceiveMessageSize(kLongestMessageBytes);
  const std::string host = HostOf(address);
  return grpc::CreateCustomChannel(address,
                                   keys == nullptr || host.empty()
                                       ? grpc::InsecureChannelCredentials()
                                       : NewChannelCredentials(*keys->Current(), host, serves),
                                   arguments);
}

void SetServerOptions(grpc::ServerBuilder& builder) {
  PrepareGrpc();
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMilliseconds);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMilliseconds);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             kKeepaliveMilliseconds / 2);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxStreams);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeMilliseconds);
  builder.SetMaxReceiveMessageSize(kLongestMessageBytes);
}

void PrepareGrpc() {
  static const bool prepared = [] {
    gpr_set_log_function([](gpr_log_func_args* line) { NoteHandshakeError(line->message); });
    RequireTls13();
    // Each thread polls what it waits for. With the default (one epoll set for all threads) the
    // data of a message is often read by a thread that only passes it on: a wake-up more on every
    // message, measured as 20 instead of 6 switches in a step of LeNet on two workers.
    setenv("GRPC_POLL_STRATEGY", "poll", /*overwrite=*/0);
    return true;
  }();
  static_cast<void>(prepared);
}

absl::Status CheckToken(const grpc::ServerContextBase& context, const std::string& token) {
  const auto& metadata = context.client_metadata();
  const auto found = metadata.find(kTokenKey);
  if (found != metadata.end() && SameToken({found->second.data(), found->second.size()}, token)) {
    return absl::OkStatus();
  }
  return absl::UnauthenticatedError(
      "the caller does not have this worker's token: start the worker and the job with the same "
      "--token-file");
}

}  // namespace weft
