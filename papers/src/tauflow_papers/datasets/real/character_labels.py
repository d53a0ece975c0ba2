"""Labels of the second half of the character trajectories, whose file has none."""

SECOND_HALF_LABELS = (
    "rrvzeugpadghlwhhbhqhezblacsedbosczdngsprlnelrurmncoqoysngleacuswddqvemcbuzdysswq"
    "zzwvqcppcreqcloseesheponphzmeoshlyevcvnmbzehdszyynuglwawnccuqlhuuanhvwgdsqlqsdco"
    "mybmgshvloyeanahwblhyzvogyodvpmmllabdawvzyonoceucvgrwpozyvyenslaasdqedocegnrrbau"
    "dyssruqlerznaaesdpqadhzqmzewglezlcoqcwsgcdouwqdapaczwbuurgeybnellgpsmowdzqsvdeay"
    "upmwhuvbespyoudyhcuzulrubphuvzqwhsscdcevropemurmzecelqdqqaeyzzpcaezezpqlwodlmuap"
    "hynmadpcycqwshoznlpqgmsszhqlebabgwzcoggowrrnllswcuedbdhmgrynsqaqyqhqgchlodhulbau"
    "odmhdwoobaudqsopulszanpnwdzpdvzzwgyqndhzqzqmdpwessqwvuzarmlgpdhdvuvlqpvayrzecnag"
    "aholdgyhuoszoaovvnsqgnwqomgoocnsgddsoaywccdcbbmosyvssumzyllemsyenzuesoybrlmwzpho"
    "wcbceuurpsccqpbbbecsqpcwnwpuopgglcdgdwvbcygalcyedyoqacrvnqezvvndlrgarpcgezrhquao"
    "mwarugendawoahyrgrvullcnhnaqlhaluawlsaczdunslrcuczzdcolhmenchqvgyaqhpvhuumlqyuqr"
    "npnsnsuycolncvzzmymwelarbpanlaavzubvrocpzoneloespepoycerbdhezpsnyulvzezrrudgdpuc"
    "ladsqbzzeohsverpblwomuzvcpmemhehwhnlvsyhdglhaplndlwwaundzzmhanhvcrdhsgarvlhowdvd"
    "cbaacweddynzmwnscmvnqmzqooelhrwpcusewaqmybadqmvepprlrqmgehssgwheezdgqybnrhdzvllc"
    "acwhmsqrrmpbslzzaaybnecaywrloweudvvwrzlbsvggqyowuywlvmpzvhralalzdqrugymnwgrsonvy"
    "vcauldcagdqhmsnolsooaybnoanlpbdldmrrczdbrlaadqobedrlezrdagemwhhndmgzgccoawlavahq"
    "anyelnvzlgcuambdbwdlmobngqgeehqllmnnzcghaughrqdapelbepauhcosyhzeblbmspwpvlvbmubq"
    "bbygbpelsmayuazamybpdnnuyrawrnledpyyaemuhrnbozgoaodmyylgevnceeygpgwpdzohaobwvvhq"
    "vwoeddwlyygcnelgqamqvrzbycllzveyuowvvebywoddgvapqdwllouepyeyevezrhlou"
)
"""The character of every trial of ``trajectories_xtest.mat``, in the file's order.

Found by matching each trial with a labelled copy of the whole data set, one to one; on the first
half that copy and the labels in the file agree for every trial.
"""
