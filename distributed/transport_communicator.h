// Communicator over any Transport: channels, and collectives executed from their schedules.
#ifndef WEFT_DISTRIBUTED_TRANSPORT_COMMUNICATOR_H_
#define WEFT_DISTRIBUTED_TRANSPORT_COMMUNICATOR_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "distributed/traffic.h"
#include "distributed/transport.h"
#include "executor/interfaces/communicator.h"
#include "platform/clock.h"
#include "platform/mutex.h"

namespace weft {

// What every message of this rank says about the job.
struct JobIdentity {
  uint64_t job_id = 0;
  uint64_t incarnation = 0;
};

// Borrows transport and clock. Opening is done before the steps, by one thread; then channels and
// collectives may be used from different threads. At most one message per channel is under way: a
// second Send first waits until the first has left.
class TransportCommunicator final : public Communicator {
 public:
  TransportCommunicator(Transport& transport, Clock& clock, JobIdentity identity,
                        absl::Duration stall_timeout);
  ~TransportCommunicator() override;

  RankId rank() const override { return transport_.rank(); }
  absl::StatusOr<ChannelHandle> OpenChannel(const Channel& channel) override;
  absl::StatusOr<CollectiveHandle> OpenCollective(const CollectiveSpec& spec) override;
  absl::Status Send(ChannelHandle channel, MessageKey key, const void* data) override;
  absl::Status WaitSent(ChannelHandle channel) override;
  absl::Status Receive(ChannelHandle channel, MessageKey key, void* data) override;
  absl::Status RunCollective(CollectiveHandle collective, MessageKey key,
                             void* const* buffers) override;
  int64_t unexpected_collective_bytes(RankId peer) const override;
  void Abort(const absl::Status& reason) override;

  // Ends what is under way, and waits until the transport uses no memory of the programs any more:
  // before that goes back. After a step that went well there is nothing, and the peers, which may
  // still be at work, hear nothing of it; else the transport is aborted. Between steps.
  void EndTransfers();

  // What was sent on everything opened so far, in the order of opening; channels that end here are
  // among them, with nothing sent. Between steps, in the thread that runs them.
  std::vector<StreamTraffic> traffic() const;
  size_t streams_opened() const { return opened_.size(); }

 private:
  // Written by the one thread that uses the channel or collective.
  struct Sent {
    int64_t messages = 0;
    int64_t payload_bytes = 0;
    void Count(const MessageHeader& header) {
      ++messages;
      payload_bytes += static_cast<int64_t>(header.bytes);
    }
  };
  // One posted transfer and whoever waits for it. Reused.
  class Transfer;
  // A directed message stream; programs that use the same one share its numbering.
  struct Stream {
    uint32_t id = 0;
    uint64_t sent = 0;
    uint64_t received = 0;
    std::unique_ptr<Transfer> sending;
    std::unique_ptr<Transfer> receiving;
  };
  struct OpenedChannel {
    Channel channel;
    std::string description;  // for messages
    Stream* stream = nullptr;
    MessageHeader header;
    MessageKey last_sent;
    Sent sent;
  };
  struct OpenedCollective {
    CollectiveSpec spec;
    std::string description;  // for messages
    uint32_t stream_id = 0;
    std::map<int, uint64_t> sent_to;        // messages, by member
    std::map<int, uint64_t> received_from;  // messages, by member
    Sent sent;
    std::vector<std::unique_ptr<Transfer>> sends;  // one per kSend step; null elsewhere
    std::unique_ptr<Transfer> receiving;
    bool receive_is_posted = false;  // of the next step
    // The rank computes nothing while it runs.
    bool alone() const { return !spec.beside_compute; }
  };

  enum class Direction { kSend, kReceive };
  MessageHeader HeaderOf(uint32_t stream, DType dtype, int64_t elements) const;
  // Of `what` ("tensor 'h'"), which goes to `peer` or comes from it.
  absl::Status Wait(Transfer& transfer, Direction direction, const std::string& what,
                    MessageKey key, RankId peer, bool alone);
  absl::Status WaitError(const absl::Status& status, Direction direction, const std::string& what,
                         MessageKey key, RankId peer) const;
  // The receive after send `index` may be posted before it: what comes goes straight to its place,
  // and a peer is a message less ahead.
  bool MayReceiveBefore(OpenedCollective& collective, size_t index) const;
  void PostReceive(OpenedCollective& collective, size_t index, MessageKey key,
                   void* const* buffers);
  absl::Status RunStep(OpenedCollective& collective, size_t index, MessageKey key,
                       void* const* buffers);
  // A send that still reads a part of `range` must be over before it is written.
  absl::Status WaitForReaders(OpenedCollective& collective, size_t index, const BufferRange& range,
                              MessageKey key);

  Transport& transport_;
  Clock& clock_;
  const JobIdentity identity_;
  const absl::Duration stall_timeout_;
  // By channel id, sender and receiver: another program may use the number between other ranks.
  std::map<std::tuple<int32_t, RankId, RankId>, std::unique_ptr<Stream>> streams_;
  std::vector<std::unique_ptr<OpenedChannel>> channels_;
  std::vector<std::unique_ptr<OpenedCollective>> collectives_;
  // Handles in the order of opening.
  struct Opened {
    bool is_channel = false;
    int handle = -1;
  };
  std::vector<Opened> opened_;
  std::map<std::string, uint32_t> opened_by_name_;  // collectives, by group and name
};

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_TRANSPORT_COMMUNICATOR_H_
