// ConnectionGate: accepts a server's connections, and bounds how many there are.
#ifndef WEFT_DISTRIBUTED_GRPC_CONNECTION_GATE_H_
#define WEFT_DISTRIBUTED_GRPC_CONNECTION_GATE_H_

#include <functional>
#include <list>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "platform/file_descriptor.h"
#include "platform/mutex.h"

namespace weft {

// How many connections a server has at once.
struct ConnectionLimits {
  // Of strangers: who has shown no token yet. One more ends the oldest of the host that has most.
  int strangers = 64;
  // Of all; further ones are refused. Where the process may not open twice as many files, fewer.
  int total = 4096;
  // How long a stranger may take to show its token.
  absl::Duration patience = absl::Seconds(10);
};

// Listens, accepts in a thread of its own, and hands each connection to a server. gRPC's own
// listener (1.51) takes all that come, and never accepts again after the process once had no file
// descriptor left: a thousand idle connections closed the door for good.
//
// Of a unix socket, only processes of this user and of root are let in, and they are no strangers.
class ConnectionGate {
 public:
  // Takes a connected socket over (not blocking, closed on exec). Called by the gate's thread.
  using Take = std::function<void(int listener, int connection)>;

  // Listens on "host:port" (the first address of the host; port 0 = any free one) or "unix:/path",
  // whose file only this user may use. Unavailable naming the address when that cannot be.
  static absl::StatusOr<std::unique_ptr<ConnectionGate>> Listen(const std::string& address,
                                                                const ConnectionLimits& limits);
  ~ConnectionGate();

  // With the port that was found for 0.
  const std::string& address() const { return address_; }
  // Begins to accept. Once.
  void Start(Take take);
  // Who has the other end of the connection has shown the token. `peer` is as gRPC says it:
  // "ipv4:127.0.0.1:4711". Any thread.
  void Trust(const std::string& peer);
  // Accepts no more; connections stay. Idempotent.
  void Stop();
  // That are open, and how many of them are strangers'. Any thread.
  int connections() const;
  int strangers() const;

 private:
  struct Connection {
    FileDescriptor socket;  // a second one for the server's connection
    std::string host;
    std::string peer;  // as of Trust; "" of a unix socket
    absl::Time accepted;
    bool trusted = false;
  };

  ConnectionGate(std::string address, FileDescriptor listener, FileDescriptor wake,
                 const ConnectionLimits& limits);
  void Run();
  // Accepts what has come. False where the system has no room for another one.
  bool AcceptAll();
  // Whether the connection may stay; makes room for it.
  bool Admit(int connection);
  void EndOldestStranger() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndLateStrangers(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  int Strangers() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  std::string address_;
  const FileDescriptor listener_;
  const FileDescriptor wake_;
  ConnectionLimits limits_;
  Take take_;
  std::thread thread_;
  mutable Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::list<Connection> connections_ ABSL_GUARDED_BY(mutex_);  // the oldest first
};

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_GRPC_CONNECTION_GATE_H_
