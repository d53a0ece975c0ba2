"""The data sets of the papers, registered by name when this package is imported."""

from tauflow.data.registry import register

from .boards import generated, recordings, tables
from .real.character_trajectories import CHARACTER_TRAJECTORIES, load_character_trajectories
from .real.gesture import GESTURE, load_gesture
from .real.half_cheetah import HALF_CHEETAH, load_half_cheetah
from .real.har import HAR, load_har
from .real.imdb import IMDB, load_imdb
from .real.mnist import EVENT_MNIST, SEQ_MNIST, load_event_mnist, load_seq_mnist
from .real.occupancy import OCCUPANCY, load_occupancy
from .real.ozone import OZONE, load_ozone
from .real.person_activity import PERSON_ACTIVITY, load_person_activity
from .real.physionet2012 import PHYSIONET2012, load_physionet2012
from .real.physionet_forecast import PHYSIONET_FORECAST, load_physionet_forecast
from .real.physionet_mortality import PHYSIONET_MORTALITY, load_physionet_mortality
from .real.power import POWER, POWER_HOURLY, load_power, load_power_hourly
from .real.speech_commands import SPEECH_COMMANDS, load_speech_commands
from .real.traffic import TRAFFIC, load_traffic
from .real.walker2d import WALKER2D, load_walker2d
from .synthetic.flip_flop import FLIP_FLOP, load_flip_flop
from .synthetic.lane_keeping import LANE_KEEPING, load_lane_keeping
from .synthetic.ornstein_uhlenbeck import ORNSTEIN_UHLENBECK, load_ornstein_uhlenbeck
from .synthetic.xor import XOR_DENSE, XOR_EVENT, load_xor_dense, load_xor_event
from .validation import validate

for _card, _loader in (
    (HALF_CHEETAH, load_half_cheetah),
    (WALKER2D, load_walker2d),
    (XOR_DENSE, load_xor_dense),
    (XOR_EVENT, load_xor_event),
    (SEQ_MNIST, load_seq_mnist),
    (EVENT_MNIST, load_event_mnist),
    (GESTURE, load_gesture),
    (OCCUPANCY, load_occupancy),
    (OZONE, load_ozone),
    (TRAFFIC, load_traffic),
    (POWER, load_power),
    (POWER_HOURLY, load_power_hourly),
    (HAR, load_har),
    (PERSON_ACTIVITY, load_person_activity),
    (PHYSIONET2012, load_physionet2012),
    (PHYSIONET_FORECAST, load_physionet_forecast),
    (PHYSIONET_MORTALITY, load_physionet_mortality),
    (IMDB, load_imdb),
    (CHARACTER_TRAJECTORIES, load_character_trajectories),
    (SPEECH_COMMANDS, load_speech_commands),
    (FLIP_FLOP, load_flip_flop),
    (ORNSTEIN_UHLENBECK, load_ornstein_uhlenbeck),
    (LANE_KEEPING, load_lane_keeping),
):
    register(_card, validate(_card.name, _loader))
for _board in (*tables.BOARDS, *generated.BOARDS, *recordings.BOARDS):
    register(_board.card, validate(_board.card.name, _board.load))
